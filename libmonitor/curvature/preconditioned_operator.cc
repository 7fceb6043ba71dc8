#include "curvature/preconditioned_operator.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"

namespace ptqwatch::internal {

PreconditionedOperator::PreconditionedOperator(SymmetricOperator* hessian, Vector scale,
                                               Vector shift)
    : hessian_(hessian),
      scale_(std::move(scale)),
      shift_(std::move(shift)),
      scaled_(hessian->space().Zero()) {}

absl::Status PreconditionedOperator::Apply(const Vector& v, Vector& av,
                                           const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  scaled_.elements.copy_(v.elements);
  space().Multiply(scale_, scaled_);
  PTQWATCH_RETURN_IF_ERROR(hessian_->Apply(scaled_, av, context));
  space().Multiply(scale_, av);
  if (shift_.defined()) {
    scaled_.elements.copy_(v.elements);
    space().Multiply(shift_, scaled_);
    space().Axpy(1, scaled_, av);
  }
  if (space().IsFinite(av)) return absl::OkStatus();
  return absl::DataLossError("a product with the preconditioned Hessian is not finite");
}

}  // namespace ptqwatch::internal
