#include "flag_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ptqwatch::examples {
namespace {

CLI::Validator Check(std::function<bool(const std::string&)> accepts, std::string expected,
                     std::string placeholder) {
  return CLI::Validator(
      [accepts = std::move(accepts), expected = std::move(expected)](std::string& text) {
        return accepts(text) ? std::string() : absl::StrCat("'", text, "' is not ", expected);
      },
      std::move(placeholder));
}

}  // namespace

CLI::Validator IntegerAtLeast(int64_t least) {
  return Check(
      [least](const std::string& text) {
        int64_t value = 0;
        return absl::SimpleAtoi(text, &value) && value >= least;
      },
      absl::StrCat("an integer of at least ", least), absl::StrCat(">=", least));
}

CLI::Validator RealBetween(double least, double greatest) {
  return Check(
      [least, greatest](const std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && value >= least && value <= greatest;
      },
      absl::StrCat("a number from ", least, " to ", greatest), absl::StrCat(least, "..", greatest));
}

CLI::Validator PositiveReal() {
  return Check(
      [](const std::string& text) {
        double value = 0;
        return absl::SimpleAtod(text, &value) && value > 0 && std::isfinite(value);
      },
      "a positive number", ">0");
}

CLI::Validator OneOf(std::vector<std::string> choices) {
  std::string expected = absl::StrCat("one of ", absl::StrJoin(choices, ", "));
  std::string placeholder = absl::StrJoin(choices, "|");
  return Check(
      [choices = std::move(choices)](const std::string& text) {
        return std::find(choices.begin(), choices.end(), text) != choices.end();
      },
      std::move(expected), std::move(placeholder));
}

}  // namespace ptqwatch::examples
