#ifndef PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_
#define PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/capture_plan.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Runs the calibration batches through the replica with its present weights. Returns the Gram
/// matrices `grams` of the plan, in this order. One forward pass per batch, however many Grams; a
/// Gram does not depend on which others are captured with it. Inputs in other dtypes are converted
/// to float32. Memory: the Grams and one block of rows. Errors: Cancelled, DeadlineExceeded,
/// ResourceExhausted; FailedPrecondition if the closure throws or does not use these weights as it
/// did when the capture was planned.
absl::StatusOr<std::vector<GramStatistics>> CaptureGrams(Replica& replica, const CapturePlan& plan,
                                                         absl::Span<const int> grams,
                                                         const std::vector<Batch>& batches,
                                                         const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_ACTIVATION_CAPTURE_H_
