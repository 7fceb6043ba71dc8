#ifndef PTQWATCH_OFFLINE_MEASURE_SLICE_H_
#define PTQWATCH_OFFLINE_MEASURE_SLICE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/loss_slice.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

struct LossSliceOptions {
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// How far the grid extends beyond the three points on each side, relative to their extent.
  double margin = 0.25;
  /// Called after each of the points^2 + 3 losses, on the calling thread. Must not throw.
  std::function<void(int64_t done, int64_t all)> progress = nullptr;
};

/// Measures the mean loss, without a monitor, over the plane through three sets of weights: the
/// live model (Theta_K), `previous` (Theta_{K-1}) and `quantized`.
///
/// `previous` and `quantized` list floating-point parameters by name, each with as many elements as
/// in the model and in the same order. Unlisted parameters and all buffers keep their live values.
/// The loss is measured on subject.curvature(), or else on the first 64 sequences of
/// subject.probe(), or more, until they have 1000 losses. The caller fills in the result's run_id,
/// steps, method and similar fields.
///
/// Reads the live model once and does not change it. Opens `subject`, which serves one call. Not
/// thread-safe for the same subject. Forward passes use LibTorch's threads. Never throws.
///
/// Cost: points^2 + 4 passes over the batches, after about four of one batch. Memory: twice the
/// model, and six vectors of its size.
///
/// Errors: InvalidArgument (options, no batches, a name that is not a floating-point parameter, a
/// wrong number of elements), FailedPrecondition (subject opened before, closure, weights that do
/// not span a plane), DataLoss (weights or their loss not finite), Cancelled, DeadlineExceeded,
/// ResourceExhausted (out of memory).
PTQWATCH_EXPORT absl::StatusOr<LossSlice> MeasureLossSlice(
    Subject& subject, const std::vector<NamedTensor>& previous,
    const std::vector<NamedTensor>& quantized, const LossSliceOptions& options = {},
    const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_MEASURE_SLICE_H_
