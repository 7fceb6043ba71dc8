#ifndef PTQWATCH_CURVATURE_LOSS_SLICE_H_
#define PTQWATCH_CURVATURE_LOSS_SLICE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_slice.h"

namespace ptqwatch::internal {

struct SliceOptions {
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// The grid goes beyond the three points by this share of their extent, on all four sides.
  double margin = 0.25;
};

/// Losses that a slice consists of: the grid's and the three points'.
inline int64_t SlicePoints(int points) { return int64_t{points} * points + 3; }

/// Told after every point: points done, and points in all.
using SliceProgress = absl::FunctionRef<void(int64_t done, int64_t all)>;

/// The mean loss over the plane through W, W + to_previous and W + to_quantized. Its axes are
/// orthonormal, u1 along to_previous and u2 along what of to_quantized is orthogonal to it
/// (Gram-Schmidt), both with ||W|| as the unit. Fills the coordinates and losses of the result, and
/// what they took. The surface is back at W afterwards, whatever happens.
///
/// Cost: points^2 + 3 losses over all batches, four vectors. InvalidArgument for `points` out of
/// range or a negative margin; FailedPrecondition where the three points span no plane;
/// DataLoss where the weights or the loss at W are not finite; Cancelled and DeadlineExceeded,
/// looked at once a batch; whatever the surface says. A loss elsewhere that is not finite is no
/// error but a NaN in its place.
absl::StatusOr<LossSlice> MeasureSlice(LossSurface& surface, const Vector& to_previous,
                                       const Vector& to_quantized, const SliceOptions& options,
                                       SliceProgress progress, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_SLICE_H_
