#ifndef PTQWATCH_CURVATURE_GAUSS_NEWTON_OPERATOR_H_
#define PTQWATCH_CURVATURE_GAUSS_NEWTON_OPERATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "curvature/hessian_operator.h"

namespace ptqwatch::internal {

/// Makes the operator of the generalized Gauss-Newton matrix G = sum_b J_b' (d2 L_b / d z_b^2) J_b,
/// with the logits z_b of batch b and their Jacobian J_b at W (Schraudolph 2002). J v comes from
/// two reverse passes (the derivative of J'u in u), because fused operators have no forward
/// derivative. `surface` must outlive the operator.
///
/// Creation costs one gradient, a product about four; memory: one batch's graph. Errors as
/// HessianOperator::Create, and FailedPrecondition without logits, or if the loss is linear in
/// them.
absl::StatusOr<std::unique_ptr<HessianOperator>> CreateGaussNewtonOperator(
    LossSurface* surface, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_GAUSS_NEWTON_OPERATOR_H_
