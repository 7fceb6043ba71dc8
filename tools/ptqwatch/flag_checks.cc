#include "flag_checks.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

// CLI11 reads larger numbers as the largest one of the type.
constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max() - 1;

}  // namespace

CLI::Validator Quiet(CLI::Validator validator) { return validator.description(""); }

// CLI::Range alone accepts "nan".
CLI::Validator Seconds() {
  const CLI::Validator number(
      [](std::string& text) {
        double value = 0;
        const bool good = absl::SimpleAtod(text, &value) && !std::isnan(value);
        return good ? std::string() : StrCat("Value ", Printable(text), " is not a number");
      },
      "");
  return Quiet(number & CLI::Range(0.0, 1e8));
}

CLI::Validator AtLeast(int64_t least) { return Quiet(CLI::Range(least, kMaxInteger)); }

}  // namespace ptqwatch::internal
