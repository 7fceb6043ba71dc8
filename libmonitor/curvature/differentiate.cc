#include "curvature/differentiate.h"

#include <cmath>

#include "ATen/core/grad_mode.h"

namespace ptqwatch::internal {

std::vector<at::Tensor> LeafTensors(const LossSurface& surface) {
  std::vector<at::Tensor> tensors;
  for (const LossSurface::Leaf& leaf : surface.leaves()) tensors.push_back(leaf.tensor);
  return tensors;
}

void Accumulate(const LossSurface& surface, const variable_list& gradients, Vector& sum) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    surface.space().View(sum, surface.leaves()[i].part).add_(gradients[i].detach());
  }
}

absl::StatusOr<double> FiniteLoss(const at::Tensor& loss) {
  const double value = loss.item<double>();
  if (std::isfinite(value)) return value;
  return absl::DataLossError("the loss on the curvature batch is not finite");
}

absl::Status CheckGradient(const VectorSpace& space, const Vector& gradient) {
  if (space.IsFinite(gradient)) return absl::OkStatus();
  return absl::DataLossError(
      "the gradient on the curvature batch is not finite (a token that is masked out must have a "
      "finite derivative too)");
}

absl::Status Differentiate(LossSurface& surface, double& loss, Vector& gradient,
                           const ExecutionContext& context) {
  const std::vector<at::Tensor> leaves = LeafTensors(surface);
  loss = 0;
  gradient.elements.zero_();
  for (size_t i = 0; i < surface.batches(); ++i) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    absl::StatusOr<at::Tensor> batch = surface.Loss(i, /*with_graph=*/true);
    if (!batch.ok()) return batch.status();
    absl::StatusOr<double> value = FiniteLoss(*batch);
    if (!value.ok()) return value.status();
    loss += *value;
    absl::Status status = Caught("the loss cannot be differentiated", [&] {
      Accumulate(surface,
                 torch::autograd::grad({*batch}, leaves, {}, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true),
                 gradient);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return CheckGradient(surface.space(), gradient);
}

}  // namespace ptqwatch::internal
