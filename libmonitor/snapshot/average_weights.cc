#include "snapshot/average_weights.h"

#include <iterator>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"

namespace ptqwatch::internal {

at::Tensor MeanOf(absl::Span<const at::Tensor> values) {
  at::NoGradGuard no_grad;
  at::Tensor sum = values[0].to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  for (const at::Tensor& value : values.subspan(1)) sum.add_(value.to(at::kDouble));
  // Divides by a tensor: some devices turn division by a number into a product with its reciprocal.
  sum.div_(at::full({}, static_cast<double>(std::ssize(values)), sum.options()));
  return sum.to(values[0].scalar_type());
}

at::Tensor WeightedSumOf(absl::Span<const at::Tensor> values, absl::Span<const double> weights) {
  at::NoGradGuard no_grad;
  at::Tensor sum = values[0].to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  sum.mul_(weights[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    // A product and a sum, as in AddToExponential.
    sum.add_(values[i].to(at::kDouble) * weights[i]);
  }
  return sum.to(values[0].scalar_type());
}

std::vector<at::Tensor> AverageWeights(absl::Span<const std::vector<at::Tensor>> lists,
                                       absl::Span<const double> weights) {
  std::vector<at::Tensor> averages;
  for (size_t i = 0; i < lists.front().size(); ++i) {
    std::vector<at::Tensor> values;
    for (const std::vector<at::Tensor>& list : lists) values.push_back(list[i]);
    averages.push_back(weights.empty() ? MeanOf(values) : WeightedSumOf(values, weights));
  }
  return averages;
}

void AddToExponential(const at::Tensor& value, double decay, at::Tensor& mean) {
  at::NoGradGuard no_grad;
  if (!mean.defined()) {
    mean = value.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    return;
  }
  // Two products and a sum: a fused operator would round differently in vectorized code.
  const at::Tensor share = value.to(at::kDouble) * (1 - decay);
  mean.mul_(decay).add_(share);
}

}  // namespace ptqwatch::internal
