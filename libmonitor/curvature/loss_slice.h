#ifndef PTQWATCH_CURVATURE_LOSS_SLICE_H_
#define PTQWATCH_CURVATURE_LOSS_SLICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/loss_slice.h"

namespace ptqwatch::internal {

struct SliceOptions {
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// The grid extends beyond the three points by this share of their extent on all four sides.
  double margin = 0.25;
};

/// The number of losses in a slice: the grid's and those of the three points.
inline int64_t SlicePoints(int points) { return int64_t{points} * points + 3; }

/// Called after every point with the number of points done and the total.
using SliceProgress = absl::FunctionRef<void(int64_t done, int64_t all)>;

/// Measures the mean loss over the plane through W, W + to_previous and W + to_quantized. The axes
/// are orthonormal: u1 along to_previous, u2 along the part of to_quantized that is orthogonal to
/// it (Gram-Schmidt). The unit of both is ||W||. Fills the coordinates and losses of the result,
/// and their cost. A loss that is not finite becomes NaN, except at W. Always returns the surface
/// to W.
///
/// Cost: points^2 + 3 losses over all batches, and four vectors. Errors: InvalidArgument for
/// `points` out of range or a negative margin; FailedPrecondition if the three points span no
/// plane; DataLoss if the weights or the loss at W are not finite; Cancelled and DeadlineExceeded,
/// checked once per batch; and those of the surface.
absl::StatusOr<LossSlice> MeasureSlice(LossSurface& surface, const Vector& to_previous,
                                       const Vector& to_quantized, const SliceOptions& options,
                                       SliceProgress progress, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_SLICE_H_
