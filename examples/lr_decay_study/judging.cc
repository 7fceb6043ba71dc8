#include "judging.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "statistics.h"

namespace ptqwatch::examples {
namespace {

constexpr std::string_view kUnits[] = {" %", " nats"};

std::string_view UnitOf(const std::string& name) {
  for (const std::string_view unit : kUnits) {
    if (name.ends_with(unit)) return unit;
  }
  return "";
}

/// Losses differ in their third decimal.
std::string Format(double value, std::string_view unit) {
  char text[32];
  const double size = std::abs(value);
  const bool is_count = value == std::round(value) && unit.empty();
  const int decimals = unit == " nats" ? 3 : size >= 100 || is_count ? 0 : size >= 10 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

}  // namespace

std::string Verdict(const Claim& claim) {
  if (claim.seeds.empty()) return "not run";
  if (std::ssize(claim.seeds) < kFewestSeeds) return "too few seeds";
  const auto holding = std::count_if(claim.seeds.begin(), claim.seeds.end(),
                                     [](const Finding& finding) { return finding.holds; });
  if (holding == std::ssize(claim.seeds)) return "holds";
  return holding == 0 ? "does not hold" : "unclear";
}

std::string Summary(const Claim& claim) {
  std::string summary;
  if (claim.seeds.empty()) return summary;
  for (size_t i = 0; i < claim.seeds.front().numbers.size(); ++i) {
    const std::string& name = claim.seeds.front().numbers[i].name;
    std::vector<double> values;
    for (const Finding& finding : claim.seeds) values.push_back(finding.numbers[i].value);
    const std::string_view unit = UnitOf(name);
    if (!summary.empty()) summary += "; ";
    summary += name.substr(0, name.size() - unit.size()) + " " + Format(Mean(values), unit);
    const double spread = values.size() > 1 ? StandardDeviation(values) : 0;
    if (spread > 0) summary += " ± " + Format(spread, unit);
    summary += unit;
  }
  return summary;
}

Claim Judge(const StudyData& data, ClaimText text,
            const std::function<std::optional<Finding>(int64_t seed)>& find) {
  Claim claim{.text = std::move(text)};
  for (int64_t seed = 0; seed < data.settings.seeds; ++seed) {
    if (std::optional<Finding> finding = find(seed)) claim.seeds.push_back(*std::move(finding));
  }
  return claim;
}

Quantity ErrorOf(const std::string& quantizer) {
  return [quantizer](const Point& point) {
    const auto found = point.quantized.find(quantizer);
    return found == point.quantized.end() ? kAbsent : found->second.error;
  };
}

Quantity LossOf(const std::string& quantizer) {
  return [quantizer](const Point& point) {
    const auto found = point.quantized.find(quantizer);
    return found == point.quantized.end() ? kAbsent : found->second.loss;
  };
}

const Series* Find(const StudyData& data, const std::string& run) {
  const auto found = data.runs.find(run);
  return found == data.runs.end() || found->second.empty() ? nullptr : &found->second;
}

const Point* At(const Series& series, int64_t step) {
  const auto found = std::find_if(series.begin(), series.end(),
                                  [step](const Point& point) { return point.step == step; });
  return found == series.end() ? nullptr : &*found;
}

std::vector<double> Values(const Series& series, int64_t after, int64_t to,
                           const Quantity& quantity) {
  std::vector<double> values;
  for (const Point& point : series) {
    if (point.step > after && point.step <= to) values.push_back(quantity(point));
  }
  return values;
}

Decay DecayOf(const Series& series, int64_t decay_steps, const Quantity& quantity) {
  const int64_t end = series.back().step;
  return {.stable = Mean(Values(series, end - 2 * decay_steps, end - decay_steps, quantity)),
          .end = quantity(series.back())};
}

}  // namespace ptqwatch::examples
