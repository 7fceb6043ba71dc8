#ifndef PTQWATCH_TRAJECTORY_CHECKPOINT_METER_H_
#define PTQWATCH_TRAJECTORY_CHECKPOINT_METER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// A model as its checkpoint's config.json describes it.
struct ModelFacts {
  std::string architecture = {};  ///< equal for all checkpoints of one model
  int64_t vocabulary = 0;
  int64_t context = 0;  ///< longest sequence
  int64_t parameters = 0;
  int64_t covered_parameters = 0;  ///< that are quantized
};

/// How far the measurement of a checkpoint has come.
struct MeterProgress {
  std::string_view part;  ///< "block", "head", "curvature"; valid during the call
  int64_t done = 0;
  int64_t of = 0;
};

/// Measures checkpoints, all with the same data and quantizers. One thread at a time.
class CheckpointMeter {
 public:
  virtual ~CheckpointMeter() = default;
  /// Reads config.json and the headers of the files: an error if one is missing or damaged.
  virtual absl::StatusOr<ModelFacts> Facts(const std::string& folder) = 0;
  /// The most memory that Measure takes.
  virtual absl::StatusOr<int64_t> Bytes(absl::Span<const std::string> folders,
                                        bool losses_alone) = 0;
  /// The measurements of the checkpoint in a folder or, with several, of their mean. Fills in
  /// probe_*, quantization, skipped_layers, calibration_mode, snapshot_digest, cost and, unless
  /// `losses_alone`, what else its options ask for: curvature, noise.
  ///
  /// Errors: DataLoss (a weight or the loss is not finite), ResourceExhausted, Cancelled, and those
  /// of reading.
  virtual absl::StatusOr<Report> Measure(absl::Span<const std::string> folders, bool losses_alone,
                                         const std::function<void(const MeterProgress&)>& progress,
                                         const ExecutionContext& context) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_CHECKPOINT_METER_H_
