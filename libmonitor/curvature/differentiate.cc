#include "curvature/differentiate.h"

#include <cmath>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"

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
      "the gradient on the curvature batch is not finite (the derivative of a masked token must be "
      "finite too)");
}

absl::Status Differentiate(LossSurface& surface, double& loss, Vector& gradient,
                           const ExecutionContext& context,
                           const std::function<void(const Vector&)>& after_batch) {
  const std::vector<at::Tensor> leaves = LeafTensors(surface);
  loss = 0;
  gradient.elements.zero_();
  for (size_t i = 0; i < surface.batches(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor batch, surface.Loss(i, /*with_graph=*/true));
    PTQWATCH_ASSIGN_OR_RETURN(const double value, FiniteLoss(batch));
    loss += value;
    const auto differentiate = [&] {
      Accumulate(surface,
                 torch::autograd::grad({batch}, leaves, {}, /*retain_graph=*/false,
                                       /*create_graph=*/false, /*allow_unused=*/true),
                 gradient);
      return absl::OkStatus();
    };
    PTQWATCH_RETURN_IF_ERROR(Guard("the loss cannot be differentiated",
                                   absl::StatusCode::kFailedPrecondition, differentiate));
    if (after_batch) after_batch(gradient);
  }
  return CheckGradient(surface.space(), gradient);
}

}  // namespace ptqwatch::internal
