#ifndef PTQWATCH_STREAMED_MEASURE_CHECKPOINT_H_
#define PTQWATCH_STREAMED_MEASURE_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/decoder.h"
#include "models/task_file.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// The tokens that every checkpoint of a trajectory is measured with.
struct TrajectoryData {
  at::Tensor probe;        ///< int64 [sequences, N + 1]: N predictions each
  at::Tensor calibration;  ///< int64 [sequences, N + 1]
  /// Scored under full precision and each quantizer; ReadTaskFile. Their hidden states, 4 D bytes a
  /// token for each quantizer in a pass, stay in memory as those of the probe tokens do.
  std::vector<TaskItem> tasks = {};
};

/// How far the measurement of a checkpoint has come.
struct MeasurementProgress {
  std::string_view part;  ///< "block", "head", "curvature"; valid during the call
  int64_t done = 0;
  int64_t of = 0;
};

struct CheckpointMeasurement {
  std::vector<QuantizerSpec> quantizers = {};  ///< at least one
  std::vector<SpecOverride> overrides = {};    ///< as MonitorOptions::overrides
  CurvatureOptions curvature = {};
  double noise_relative_norm = 0.1;  ///< as in MonitorOptions; 0: off
  bool artifact_size = false;        ///< as in MonitorOptions
  /// Measures the loss along each quantization error on the probe tokens, for models whose
  /// curvature does not fit. Two streams more a quantizer.
  bool loss_along = false;
  /// For everything that the measurement allocates; 0: nine tenths of the free memory. No number
  /// depends on it, but curvature is left out if the whole model does not fit.
  int64_t max_bytes = 0;
  uint64_t seed = 0;
  std::function<void(const MeasurementProgress&)> progress = nullptr;
};

/// The losses of the probe's sequences, by TokenBatches, that a report sums up.
struct CheckpointLosses {
  std::vector<UnitLosses> full = {};
  /// One entry a quantizer, empty unless its report has the status kOk.
  std::vector<std::vector<UnitLosses>> quantized = {};
};

/// Bytes that MeasureCheckpoint will take.
struct CheckpointCost {
  int64_t bytes = 0;            ///< the most at a time, within max_bytes if that is enough
  int64_t curvature_bytes = 0;  ///< of the whole model; left out if it exceeds max_bytes
};
/// REQUIRES: arguments that MeasureCheckpoint accepts.
CheckpointCost CostOf(const Decoder& decoder, const TrajectoryData& data,
                      const CheckpointMeasurement& options);

/// Measures one checkpoint block by block: reads a block, sums its Gram matrices over the
/// calibration stream, quantizes its layers under all quantizers, pushes the full-precision stream,
/// each quantized stream and one with noise in the weights of probe tokens through it, and frees
/// it. If memory does not suffice for all quantizers at once, they go through the blocks in groups;
/// if not for the Gram matrices of a block's inputs, such as those of all experts, the calibration
/// stream passes the block once for each part of them.
/// Fills in probe_*, quantization, skipped_layers, calibration_mode, curvature, noise, tasks,
/// snapshot_digest and cost of a report; the caller fills in the rest. The same numbers, bit for
/// bit, as a monitor that has the whole model and measures the same batches (TokenBatches) to the
/// end. Sets `losses`, unless it is null, if there is a report.
///
/// Reserves what it allocates in context.bytes, whose limit is lower meanwhile, and checks the
/// context before every matrix product. Matrix products use LibTorch's threads, the engine
/// context.threads. Not thread-safe for one budget.
///
/// Errors: InvalidArgument (tokens, tasks, options), ResourceExhausted (`max_bytes`, with the
/// number that would do), DataLoss (a weight, naming the tensor, or the full-precision loss is not
/// finite), those of the reader, Cancelled, DeadlineExceeded. A quantizer that fails has a status.
/// Never throws.
absl::StatusOr<Report> MeasureCheckpoint(const Decoder& decoder, const TrajectoryData& data,
                                         const CheckpointMeasurement& options,
                                         const ExecutionContext& context,
                                         CheckpointLosses* losses = nullptr);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_MEASURE_CHECKPOINT_H_
