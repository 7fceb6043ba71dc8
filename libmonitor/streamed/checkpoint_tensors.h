#ifndef PTQWATCH_STREAMED_CHECKPOINT_TENSORS_H_
#define PTQWATCH_STREAMED_CHECKPOINT_TENSORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/decoder.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Digest of the bits of all tensors as float32, in the order of their names: that of a monitor
/// whose subject lists the tensors so. Reads each tensor once. DataLoss, naming the tensor, if one
/// is not finite; the reader's errors; Cancelled.
absl::StatusOr<std::string> DigestOfTensors(const Decoder& decoder,
                                            const ExecutionContext& context);

/// The tensors that are not quantized, in the order of their names, with a monitor's reasons.
std::vector<SkippedLayer> SkippedTensors(const Decoder& decoder);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_CHECKPOINT_TENSORS_H_
