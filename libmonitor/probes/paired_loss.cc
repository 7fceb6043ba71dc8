#include "probes/paired_loss.h"

#include <cmath>
#include <limits>

namespace ptqwatch::internal {

namespace {

struct Sums {
  double top = 0;
  double bottom = 0;
  double ratio() const { return top / bottom; }
};

Sums SumsOf(absl::Span<const double> numerator, absl::Span<const double> denominator) {
  Sums sums;
  for (size_t i = 0; i < numerator.size(); ++i) {
    sums.top += numerator[i];
    sums.bottom += denominator[i];
  }
  return sums;
}

}  // namespace

RatioEstimate EstimateRatio(absl::Span<const double> numerator,
                            absl::Span<const double> denominator) {
  const Sums sums = SumsOf(numerator, denominator);
  RatioEstimate estimate;
  estimate.value = sums.ratio();
  double squares = 0;
  for (size_t i = 0; i < numerator.size(); ++i) {
    const double rest = numerator[i] - estimate.value * denominator[i];
    squares += rest * rest;
  }
  const double n = static_cast<double>(numerator.size());
  estimate.stderr_value = n < 2 ? std::numeric_limits<double>::infinity()
                                : std::sqrt(n / (n - 1) * squares) / std::abs(sums.bottom);
  return estimate;
}

RatioEstimate EstimateDifference(const RatioTerms& first, const RatioTerms& second) {
  const Sums before = SumsOf(first.numerator, first.denominator);
  const Sums after = SumsOf(second.numerator, second.denominator);
  double squares = 0;
  for (size_t i = 0; i < first.numerator.size(); ++i) {
    const double rest =
        (second.numerator[i] - after.ratio() * second.denominator[i]) / after.bottom -
        (first.numerator[i] - before.ratio() * first.denominator[i]) / before.bottom;
    squares += rest * rest;
  }
  const double n = static_cast<double>(first.numerator.size());
  return {.value = after.ratio() - before.ratio(),
          .stderr_value =
              n < 2 ? std::numeric_limits<double>::infinity() : std::sqrt(n / (n - 1) * squares)};
}

void SetIfFinite(const RatioEstimate& estimate, std::optional<double>& value,
                 std::optional<double>& stderr_value) {
  if (!std::isfinite(estimate.value)) return;
  value = estimate.value;
  if (std::isfinite(estimate.stderr_value)) stderr_value = estimate.stderr_value;
}

}  // namespace ptqwatch::internal
