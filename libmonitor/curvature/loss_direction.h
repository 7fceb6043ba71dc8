#ifndef PTQWATCH_CURVATURE_LOSS_DIRECTION_H_
#define PTQWATCH_CURVATURE_LOSS_DIRECTION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/hessian_operator.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::internal {

/// Measures the loss along d to second order. Costs one product and memory for one vector. Errors
/// as HessianOperator::Apply, and FailedPrecondition if d is zero.
absl::StatusOr<HessianDirection> MeasureDirection(HessianOperator& hessian, const Vector& d,
                                                  const ExecutionContext& context);

/// (v'd)^2 / d'd for a unit vector v: the share of d along v, in [0, 1].
double Alignment(const VectorSpace& space, const Vector& v, const Vector& d);

/// The mean loss at W + a d for every a in `scales`; NaN for a loss that is not finite. Returns the
/// surface to W.
/// REQUIRES: no operator with a retained graph exists for the surface.
absl::StatusOr<std::vector<double>> LossesAlong(LossSurface& surface, const Vector& d,
                                                absl::Span<const double> scales,
                                                const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_DIRECTION_H_
