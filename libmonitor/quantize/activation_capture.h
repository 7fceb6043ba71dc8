#ifndef PTQWATCH_QUANTIZE_ACTIVATION_CAPTURE_H_
#define PTQWATCH_QUANTIZE_ACTIVATION_CAPTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// A weight that is multiplied with activations in the forward pass.
struct CoveredLayer {
  int entry = 0;  ///< in the replica's table
  std::string name;
  int64_t outputs = 0;      ///< m
  int64_t inputs = 0;       ///< d
  bool transposed = false;  ///< stored as [inputs, outputs]
  int gram = 0;             ///< layers that see the same inputs share one
};

/// Which layers are quantized and where their inputs come from; made once, from one forward pass.
struct CapturePlan {
  std::vector<CoveredLayer> layers;  ///< in order of first use
  std::vector<SkippedLayer> skipped;
  std::vector<int64_t> gram_inputs;  ///< d of each Gram matrix
  int64_t covered_parameters = 0;

  int64_t gram_bytes() const;
};

/// Watches one forward pass of `batch` on the replica by a thread-local RecordFunction callback:
/// every outermost linear, addmm, matmul or mm with a parameter as an operand, in either
/// orientation, recognised by its memory. FailedPrecondition when the closure throws, when this
/// build cannot read LibTorch's records, or when nothing is left to quantize.
absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, const Batch& batch,
                                        const LayerSelection& selection);

/// Runs the calibration batches through the replica as it is now and sums up the Gram matrices of
/// the plan, one each. One forward pass a batch serves every method and bit-width. Inputs in other
/// dtypes are converted to float32. Cancelled as the context says; FailedPrecondition when the
/// closure throws or uses its weights differently than at planning.
absl::StatusOr<std::vector<GramStatistics>> CaptureGrams(ExecutionContext& context,
                                                         Replica& replica, const CapturePlan& plan,
                                                         const std::vector<Batch>& batches);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_ACTIVATION_CAPTURE_H_
