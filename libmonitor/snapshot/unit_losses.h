#ifndef PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_
#define PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The losses of a batch per unit (sequence): the weighted sum and the sum of the weights. Without
/// the units that are masked out and have no example: a standard error counts units, and those say
/// nothing about the scatter of the others.
struct UnitLosses {
  std::vector<double> sum;
  std::vector<double> weight;
  int64_t tokens = 0;  ///< positions whose weight is not 0
  /// Examples that the model gets right, and all examples. Empty without LossValues::correct.
  std::vector<double> correct;
  std::vector<double> examples;
};

/// FailedPrecondition, naming the shape, unless the losses are floating-point values of shape [],
/// [sequences] or [sequences, time], and the weights have the same shape.
absl::Status CheckLosses(const LossValues& losses, const Batch& batch);

/// Sums over the time dimension in float64. A scalar loss is one unit of weight 1. For scalar and
/// [sequences] losses, `tokens` counts the elements of the batch's first tensor. Returns
/// FailedPrecondition, naming the shape, if the losses are not valid (CheckLosses), or unless
/// LossValues::correct, if set, has the same sequences and values from 0 to 1 (or NaN, which counts
/// as no example).
absl::StatusOr<UnitLosses> SumByUnit(const LossValues& losses, const Batch& batch);

/// The sum of a batch's loss weights, or the number of losses if they have no weights.
double TotalWeight(const LossValues& losses);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_
