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

/// The loss along d to second order. One product; memory of one vector. Errors as
/// HessianOperator::Apply; FailedPrecondition where d is zero.
absl::StatusOr<HessianDirection> MeasureDirection(HessianOperator& hessian, const Vector& d,
                                                  const ExecutionContext& context);

/// (v'd)^2 / d'd with the unit vector v: the share of d along v, in [0, 1].
double Alignment(const VectorSpace& space, const Vector& v, const Vector& d);

/// The mean loss at W + a d for every a in `scales`; NaN where it is not finite. The surface is
/// left at W. No operator with a retained graph may live on it.
absl::StatusOr<std::vector<double>> LossesAlong(LossSurface& surface, const Vector& d,
                                                absl::Span<const double> scales,
                                                const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_DIRECTION_H_
