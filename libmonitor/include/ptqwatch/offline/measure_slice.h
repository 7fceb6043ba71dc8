#ifndef PTQWATCH_OFFLINE_MEASURE_SLICE_H_
#define PTQWATCH_OFFLINE_MEASURE_SLICE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_slice.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

struct LossSliceOptions {
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// The grid goes beyond the three points by this share of their extent, on all four sides.
  double margin = 0.25;
  /// Called after each of the points^2 + 3 losses, on the calling thread; must not throw.
  std::function<void(int64_t done, int64_t all)> progress = nullptr;
};

/// Measures a slice of the loss surface without a monitor. The live model has the weights of
/// Theta_K; `previous` are those of Theta_{K-1}, and `quantized` the quantized ones, each under the
/// name of its parameter, with as many elements in the same order. A floating-point parameter that
/// is not named is as in the live model, and so are all buffers. The mean loss is that on
/// subject.curvature(), or the first 64 sequences of subject.probe(). The live model is only read,
/// once; `subject` must be fresh, for BuildReplica is called on it.
///
/// What a monitor knows of a run (run_id, steps, method, ...) is left for the caller to fill in.
/// Cost: points^2 + 4 passes over these batches; memory: twice the model for the replica, and six
/// vectors of its size. Not thread-safe for one subject; forward passes use LibTorch's threads.
/// Errors: InvalidArgument (options, a name that no floating-point parameter has, another number of
/// elements), FailedPrecondition (subject, closure, weights that span no plane), DataLoss (weights
/// or their loss not finite), Cancelled, DeadlineExceeded, ResourceExhausted.
absl::StatusOr<LossSlice> MeasureLossSlice(Subject& subject,
                                           const std::vector<NamedTensor>& previous,
                                           const std::vector<NamedTensor>& quantized,
                                           const LossSliceOptions& options = {},
                                           const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_MEASURE_SLICE_H_
