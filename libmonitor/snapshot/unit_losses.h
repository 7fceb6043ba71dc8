#ifndef PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_
#define PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The losses of a batch for each unit (sequence): the weighted sum and the sum of the weights.
struct UnitLosses {
  std::vector<double> sum;
  std::vector<double> weight;
  int64_t tokens = 0;  ///< positions whose weight is not 0
  /// Examples that the model gets right, and all examples; empty without LossValues::correct.
  std::vector<double> correct;
  std::vector<double> examples;
};

/// Sums over the time dimension in float64. A scalar loss is one unit of weight 1. The tokens of a
/// scalar and of [sequences] losses are counted in the batch's first tensor. FailedPrecondition,
/// naming the shape, unless the losses are floating-point values of shape [], [sequences] or
/// [sequences, time] with weights of the same shape, and LossValues::correct, where there is one,
/// has the same sequences and values from 0 to 1 (or NaN, which is no example).
absl::StatusOr<UnitLosses> SumByUnit(const LossValues& losses, const Batch& batch);

/// The sum of a batch's loss weights; the number of losses if they have no weights.
double TotalWeight(const LossValues& losses);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_UNIT_LOSSES_H_
