#ifndef PTQWATCH_PROBES_PAIRED_LOSS_H_
#define PTQWATCH_PROBES_PAIRED_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The losses of a batch by unit (sequence): weighted sum and sum of weights.
struct UnitLosses {
  std::vector<double> sum;
  std::vector<double> weight;
  int64_t tokens = 0;  ///< positions with a weight other than 0
};

/// Sums the time dimension up in float64. A scalar is one unit of weight 1; its tokens, and those
/// of [sequences] losses, are counted in the batch's first tensor. FailedPrecondition naming the
/// shape when `losses` is not a scalar, [sequences] or [sequences, time] of floating-point values,
/// or when the weights do not fit.
absl::StatusOr<UnitLosses> SumByUnit(const LossValues& losses, const Batch& batch);

/// A ratio of sums over units and its standard error.
struct RatioEstimate {
  double value = 0;
  double stderr_value = 0;  ///< infinite with fewer than two units
};

/// sum(numerator) / sum(denominator), with the standard error of a ratio estimator over units:
/// se^2 = n/(n-1) sum (x_i - r y_i)^2 / (sum y)^2 (Cochran, Sampling Techniques, eq. 6.13).
RatioEstimate EstimateRatio(absl::Span<const double> numerator,
                            absl::Span<const double> denominator);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PAIRED_LOSS_H_
