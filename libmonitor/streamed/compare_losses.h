#ifndef PTQWATCH_STREAMED_COMPARE_LOSSES_H_
#define PTQWATCH_STREAMED_COMPARE_LOSSES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "streamed/measure_checkpoint.h"

namespace ptqwatch::internal {

/// A number of the second model minus that of the first. The standard error is that of the pairs:
/// both numbers come from the same sequences, and what a sequence adds to both cancels. Absent if a
/// model has no such number; the error also with one sequence.
struct PairedDifference {
  std::optional<double> value = {};
  std::optional<double> stderr_value = {};
};

/// Two models under one quantizer.
struct QuantizerDifference {
  PairedDifference loss_nats = {};    ///< CE(W_hat)
  PairedDifference delta_nats = {};   ///< CE(W_hat) - CE(W)
  PairedDifference error_ratio = {};  ///< E = CE(W_hat) / CE(W) - 1
};

struct LossesDifference {
  int64_t sequences = 0;
  int64_t tokens = 0;
  PairedDifference loss_nats = {};  ///< CE(W)
  std::vector<QuantizerDifference> quantizers =
      {};  ///< in the order of CheckpointLosses::quantized
};

/// The differences of two models that MeasureCheckpoint has measured with the same probe tokens and
/// quantizers. FailedPrecondition if the losses are of other sequences or numbers of quantizers.
absl::StatusOr<LossesDifference> CompareLosses(const CheckpointLosses& first,
                                               const CheckpointLosses& second);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_COMPARE_LOSSES_H_
