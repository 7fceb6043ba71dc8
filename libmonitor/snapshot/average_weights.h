#ifndef PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_
#define PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

// Averages of weights, live and offline. Every operation works on single elements and rounds on its
// own, so that a result has the same bits on every device and in every memory layout.

/// The mean of floating-point tensors of one shape and dtype: their sum in float64 in the given
/// order, over their number, rounded once to the dtype (float16 and bfloat16 by way of float32).
/// REQUIRES: there is one.
at::Tensor MeanOf(absl::Span<const at::Tensor> values);

/// The mean of each tensor over several lists of the same tensors.
std::vector<at::Tensor> AverageWeights(absl::Span<const std::vector<at::Tensor>> lists);

/// Takes a value into an exponential average, which is float64: decay * mean + (1 - decay) * value.
/// An undefined mean becomes the value.
void AddToExponential(const at::Tensor& value, double decay, at::Tensor& mean);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_AVERAGE_WEIGHTS_H_
