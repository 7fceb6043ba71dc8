#include "probes/paired_loss.h"

#include <cmath>
#include <limits>

namespace ptqwatch::internal {

RatioEstimate EstimateRatio(absl::Span<const double> numerator,
                            absl::Span<const double> denominator) {
  double top = 0;
  double bottom = 0;
  for (size_t i = 0; i < numerator.size(); ++i) {
    top += numerator[i];
    bottom += denominator[i];
  }
  RatioEstimate estimate;
  estimate.value = top / bottom;
  double squares = 0;
  for (size_t i = 0; i < numerator.size(); ++i) {
    const double rest = numerator[i] - estimate.value * denominator[i];
    squares += rest * rest;
  }
  const double n = static_cast<double>(numerator.size());
  estimate.stderr_value = n < 2 ? std::numeric_limits<double>::infinity()
                                : std::sqrt(n / (n - 1) * squares) / std::abs(bottom);
  return estimate;
}

void SetIfFinite(const RatioEstimate& estimate, std::optional<double>& value,
                 std::optional<double>& stderr_value) {
  if (!std::isfinite(estimate.value)) return;
  value = estimate.value;
  if (std::isfinite(estimate.stderr_value)) stderr_value = estimate.stderr_value;
}

}  // namespace ptqwatch::internal
