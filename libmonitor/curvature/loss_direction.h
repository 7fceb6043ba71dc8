#ifndef PTQWATCH_CURVATURE_LOSS_DIRECTION_H_
#define PTQWATCH_CURVATURE_LOSS_DIRECTION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/hessian_operator.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// The second-order expansion of the loss along d: L(W + a d) = L(W) + a g'd + a^2 d'Hd / 2 +
/// O(a^3).
struct LossDirection {
  double gradient_term = 0;   ///< g'd
  double curvature_term = 0;  ///< d'Hd / 2
  double squared_norm = 0;    ///< d'd
  /// g_l'd_l and d_l'(Hd)_l / 2 of every part l; they sum up to the terms.
  std::vector<double> gradient_by_part;
  std::vector<double> curvature_by_part;
  /// (v'd)^2 / d'd with the unit vector v, in [0, 1].
  double alignment = 0;

  double Predict(double scale) const {
    return scale * gradient_term + scale * scale * curvature_term;
  }
};

/// One product. `v` may be undefined: no alignment. Memory: one vector. Errors as
/// HessianOperator::Apply; FailedPrecondition where d is zero.
absl::StatusOr<LossDirection> MeasureDirection(HessianOperator& hessian, const Vector& d,
                                               const Vector& v, const ExecutionContext& context);

/// The mean loss at W + a d for every a; NaN where it is not finite. The surface is left at W. No
/// operator with a retained graph may live on it.
absl::StatusOr<std::vector<double>> LossesAlong(LossSurface& surface, const Vector& d,
                                                absl::Span<const double> scales,
                                                const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_DIRECTION_H_
