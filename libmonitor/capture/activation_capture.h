#ifndef PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_
#define PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/capture_plan.h"
#include "capture/quantize_backend.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

struct CapturedGrams {
  std::vector<std::unique_ptr<LayerGram>> grams;
  int64_t rows =
      0;  ///< the most that any weight met, whatever the Grams: the tokens of the batches
};

/// Runs the calibration batches through the replica with its current weights. Returns the Gram
/// matrices `grams` of the plan, in this order, summed by `backend`. Takes one forward pass per
/// batch, whatever the number of Grams; a Gram does not depend on the others captured with it.
/// Inputs of other dtypes are converted to float32.
/// Memory: the Grams and one block of rows.
/// Errors: Cancelled, DeadlineExceeded, ResourceExhausted; FailedPrecondition if the closure throws
/// or uses the weights differently than when the capture was planned.
absl::StatusOr<CapturedGrams> CaptureGrams(Replica& replica, const CapturePlan& plan,
                                           absl::Span<const int> grams,
                                           const std::vector<Batch>& batches,
                                           QuantizeBackend& backend,
                                           const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_
