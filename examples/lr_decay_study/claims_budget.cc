#include <algorithm>
#include <cmath>
#include <string>

#include "claims.h"
#include "run_names.h"
#include "statistics.h"

namespace ptqwatch::examples {
namespace {

/// The decay of each budget, or nothing where one was not made.
std::vector<Decay> Cooldowns(const StudyData& data, int64_t seed, const Quantity& quantity) {
  std::vector<Decay> decays;
  for (const int64_t budget : data.settings.budgets) {
    const Series* run = Find(data, RunName(seed, "cooldown", static_cast<double>(budget)));
    if (run == nullptr) return {};
    decays.push_back(DecayOf(*run, data.settings.cooldown, quantity));
  }
  return decays;
}

std::optional<Finding> Flatness(const StudyData& data, int64_t seed, const Quantity& error) {
  const Series* trunk = Find(data, RunName(seed, "trunk"));
  const std::vector<Decay> decays = Cooldowns(data, seed, error);
  if (trunk == nullptr || decays.empty()) return {};
  double risen = 0;
  for (const Decay& decay : decays) {
    risen += (decay.end - decay.stable) / static_cast<double>(decays.size());
  }
  std::vector<double> doublings;
  std::vector<double> errors;
  for (const Point& point : *trunk) {
    if (point.step < data.settings.budgets.front()) continue;
    doublings.push_back(std::log2(static_cast<double>(point.step)));
    errors.push_back(error(point));
  }
  const LineFit fit = FitLine(doublings, errors);
  return Finding{.holds = std::abs(fit.slope) + fit.half_width < kMostDrift * risen,
                 .numbers = {{"E of the trunk %", 100 * Mean(errors)},
                             {"scatter between checkpoints %", 100 * StandardDeviation(errors)},
                             {"drift per doubling, points", 100 * fit.slope},
                             {"half its 95 % interval", 100 * fit.half_width},
                             {"rise in a cooldown, points", 100 * risen}}};
}

std::optional<Finding> Sameness(const StudyData& data, int64_t seed, const Quantity& error) {
  const std::vector<Decay> decays = Cooldowns(data, seed, error);
  if (decays.empty()) return {};
  std::vector<double> ends;
  double least_jump = decays.front().jump();
  Finding finding;
  for (size_t i = 0; i < decays.size(); ++i) {
    ends.push_back(decays[i].end);
    least_jump = std::min(least_jump, decays[i].jump());
    finding.numbers.push_back(
        {"end " + std::to_string(data.settings.budgets[i]) + " %", 100 * decays[i].end});
  }
  for (size_t i = 0; i < decays.size(); ++i) {
    finding.numbers.push_back(
        {"jump " + std::to_string(data.settings.budgets[i]), decays[i].jump()});
  }
  const auto [least, most] = std::minmax_element(ends.begin(), ends.end());
  finding.numbers.push_back({"largest to smallest end", *most / *least});
  finding.holds = least_jump >= kLeastJump && *most / *least < kSame;
  return finding;
}

std::optional<Finding> LossFalls(const StudyData& data, int64_t seed) {
  const std::vector<Decay> decays =
      Cooldowns(data, seed, [](const Point& point) { return point.loss; });
  if (decays.empty()) return {};
  Finding finding{.holds = true};
  for (size_t i = 0; i < decays.size(); ++i) {
    finding.holds = finding.holds && decays[i].end < decays[i].stable;
    finding.numbers.push_back({"change " + std::to_string(data.settings.budgets[i]) + " nats",
                               decays[i].end - decays[i].stable});
  }
  return finding;
}

}  // namespace

void JudgeBudgets(const StudyData& data, std::vector<Claim>& claims) {
  for (const int bits : {3, 4}) {
    const Quantity error = ErrorOf("gptq" + std::to_string(bits));
    const std::string at = " (" + std::to_string(bits) + " bits)";
    claims.push_back(Judge(
        data,
        {.id = "8" + at,
         .claim = "At a constant rate E stays about constant.",
         .paper = "4 bits: +11 % of the mean over 100B tokens, scatter 3 %",
         .criterion = "A line through the trunk's E over log2(tokens), from the first budget on: "
                      "|slope| plus half its 95 % interval is below a quarter of the mean rise of "
                      "E in the cooldowns."},
        [&](int64_t seed) { return Flatness(data, seed, error); }));
    claims.push_back(Judge(
        data,
        {.id = "9" + at,
         .claim = "Every cooldown raises E, to about the same value whatever the budget.",
         .paper = "4 bits: jumps of 1.7 to 2.1, ends +12 % over 10 times the tokens",
         .criterion = "Each budget's end is at least 1.5 times the mean E of as many steps before "
                      "its cooldown, and the largest end below 1.25 times the smallest."},
        [&](int64_t seed) { return Sameness(data, seed, error); }));
  }
  claims.push_back(Judge(data,
                         {.id = "10",
                          .claim = "The full-precision loss falls in every cooldown.",
                          .paper = "3.65 to 3.42 nats",
                          .criterion = "At each budget the end is below the mean of as many steps "
                                       "before the cooldown."},
                         [&](int64_t seed) { return LossFalls(data, seed); }));
}

}  // namespace ptqwatch::examples
