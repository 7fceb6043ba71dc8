#ifndef PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_
#define PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

// Averages of weights, for the monitor and for offline use. Every operation is element-wise and
// rounds by itself, so a result has the same bits on every device and in every memory layout.

/// The mean of floating-point tensors of one shape and dtype. Sums in float64 in the given order,
/// divides by their number and rounds once to the dtype (float16 and bfloat16 via float32).
/// REQUIRES: `values` is not empty.
at::Tensor MeanOf(absl::Span<const at::Tensor> values);

/// The sum of `weights[i] * values[i]`, for floating-point tensors of one shape and dtype: products
/// and sums in float64 in the given order, each rounded, then rounded once to the dtype as MeanOf.
/// REQUIRES: `values` is not empty, and there are as many weights.
at::Tensor WeightedSumOf(absl::Span<const at::Tensor> values, absl::Span<const double> weights);

/// The average of each tensor over several lists of the same tensors: WeightedSumOf with `weights`
/// or, without weights, MeanOf.
std::vector<at::Tensor> AverageWeights(absl::Span<const std::vector<at::Tensor>> lists,
                                       absl::Span<const double> weights = {});

/// Adds a value to an exponential average in float64: mean = decay * mean + (1 - decay) * value. An
/// undefined mean becomes the value.
void AddToExponential(const at::Tensor& value, double decay, at::Tensor& mean);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_
