#ifndef PTQWATCH_CURVATURE_CRITICAL_SHARPNESS_H_
#define PTQWATCH_CURVATURE_CRITICAL_SHARPNESS_H_

#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::internal {

/// Finds the critical sharpness along the line W + t d. The slope comes from the losses at t = 1/4
/// and -1/4, so d should be about as long as the steps of interest: a quantization error, a few
/// percent of ||W||. Then finds the t at which the loss is that of W again by secants of
/// (L(W + t d) - L(W)) / t, which is a straight line for a quadratic. Returns the surface to W.
///
/// Cost: at most 9 mean losses, and no memory. Errors: FailedPrecondition if d is zero, if the
/// slope or the dip of the loss beside W drowns in the rounding of float32, or if the loss does not
/// rise again within 32 times the first guess; DataLoss if a loss is not finite; those of the
/// surface and the context.
/// REQUIRES: no operator with a retained graph exists for the surface.
absl::StatusOr<CriticalSharpness> FindCriticalSharpness(LossSurface& surface, const Vector& d,
                                                        const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_CRITICAL_SHARPNESS_H_
