#ifndef PTQWATCH_PROBES_PAIRED_LOSS_H_
#define PTQWATCH_PROBES_PAIRED_LOSS_H_

#include <optional>

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// A ratio of sums over units and its standard error.
struct RatioEstimate {
  double value = 0;
  double stderr_value = 0;  ///< infinite with fewer than two units
};

/// sum(numerator) / sum(denominator), with the standard error of a ratio estimator over units:
/// se^2 = n/(n-1) sum (x_i - r y_i)^2 / (sum y)^2 (Cochran, Sampling Techniques, eq. 6.13).
RatioEstimate EstimateRatio(absl::Span<const double> numerator,
                            absl::Span<const double> denominator);

/// Terms of a ratio of sums over units.
struct RatioTerms {
  absl::Span<const double> numerator;
  absl::Span<const double> denominator;
};

/// The ratio of `second` minus that of `first`, of the same units, with the standard error of the
/// difference: se^2 = n/(n-1) sum (u_i - v_i)^2, where (x_i - r y_i) / sum y is u_i in `second` and
/// v_i in `first`. What a unit adds to both ratios cancels. REQUIRES: spans of equal length.
RatioEstimate EstimateDifference(const RatioTerms& first, const RatioTerms& second);

/// Sets the numbers of the estimate that are finite; the standard error only with the value.
void SetIfFinite(const RatioEstimate& estimate, std::optional<double>& value,
                 std::optional<double>& stderr_value);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PAIRED_LOSS_H_
