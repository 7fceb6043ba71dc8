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

std::vector<at::Tensor> AverageWeights(absl::Span<const std::vector<at::Tensor>> lists) {
  std::vector<at::Tensor> means;
  for (size_t i = 0; i < lists.front().size(); ++i) {
    std::vector<at::Tensor> values;
    for (const std::vector<at::Tensor>& list : lists) values.push_back(list[i]);
    means.push_back(MeanOf(values));
  }
  return means;
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
