#include "curvature/gauss_newton_operator.h"

#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros_like.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "curvature/differentiate.h"
#include "snapshot/math_attention.h"

namespace ptqwatch::internal {
namespace {

class GaussNewtonOperator final : public HessianOperator {
 public:
  explicit GaussNewtonOperator(LossSurface* surface)
      : HessianOperator(surface), leaves_(LeafTensors(*surface)) {}

  absl::Status Build(const ExecutionContext& context) {
    gradient_ = space().Zero();
    generation_ = surface_->generation();
    return Differentiate(*surface_, loss_, gradient_, context);
  }

 private:
  absl::Status Product(const Vector& v, Vector& gv, const ExecutionContext& context) override {
    if (surface_->generation() != generation_) {
      return absl::FailedPreconditionError(
          "the weights were written to between products of one Gauss-Newton matrix");
    }
    gv.elements.zero_();
    for (size_t i = 0; i < surface_->batches(); ++i) {
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
      const MathAttention twice;
      PTQWATCH_ASSIGN_OR_RETURN(const LossSurface::LossAndLogits both, surface_->LossWithLogits(i));
      PTQWATCH_RETURN_IF_ERROR(FiniteLoss(both.loss).status());
      PTQWATCH_RETURN_IF_ERROR(Guard("the Gauss-Newton product",
                                     absl::StatusCode::kFailedPrecondition,
                                     [&] { return AddProduct(both, v, gv); }));
      AddBatch(v, gv);
    }
    return absl::OkStatus();
  }

  absl::Status AddProduct(const LossSurface::LossAndLogits& both, const Vector& v, Vector& gv) {
    at::AutoGradMode with_graph(true);
    const at::Tensor& logits = both.logits;
    if (!logits.requires_grad()) {
      return absl::FailedPreconditionError("LossValues::logits have no graph to the weights");
    }
    const at::Tensor slope = Gradient(both.loss, logits);
    if (!slope.defined()) {
      return absl::FailedPreconditionError("the loss does not depend on LossValues::logits");
    }
    if (!slope.requires_grad()) {
      return absl::FailedPreconditionError("the loss is linear in LossValues::logits");
    }
    // J'u is linear in u, so its derivative along v is J v.
    const at::Tensor u = at::zeros_like(logits).requires_grad_(true);
    const variable_list pulled =
        torch::autograd::grad({logits}, leaves_, {u}, /*retain_graph=*/true, /*create_graph=*/true,
                              /*allow_unused=*/true);
    variable_list outputs;
    variable_list factors;
    for (size_t i = 0; i < pulled.size(); ++i) {
      if (!pulled[i].defined() || !pulled[i].requires_grad()) continue;
      outputs.push_back(pulled[i]);
      factors.push_back(space().View(v, surface_->leaves()[i].part).to(pulled[i].scalar_type()));
    }
    if (outputs.empty()) return absl::OkStatus();
    const at::Tensor pushed = torch::autograd::grad(outputs, {u}, factors)[0];
    const at::Tensor curved =
        torch::autograd::grad({slope}, {logits}, {pushed}, /*retain_graph=*/true)[0];
    Accumulate(*surface_,
               torch::autograd::grad({logits}, leaves_, {curved}, /*retain_graph=*/false,
                                     /*create_graph=*/false, /*allow_unused=*/true),
               gv);
    return absl::OkStatus();
  }

  static at::Tensor Gradient(const at::Tensor& loss, const at::Tensor& logits) {
    return torch::autograd::grad({loss}, {logits}, {}, /*retain_graph=*/true,
                                 /*create_graph=*/true, /*allow_unused=*/true)[0];
  }

  std::vector<at::Tensor> leaves_;
  uint64_t generation_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HessianOperator>> CreateGaussNewtonOperator(
    LossSurface* surface, const ExecutionContext& context) {
  auto made = std::make_unique<GaussNewtonOperator>(surface);
  PTQWATCH_RETURN_IF_ERROR(made->Build(context));
  return made;
}

}  // namespace ptqwatch::internal
