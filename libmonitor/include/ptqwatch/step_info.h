#ifndef PTQWATCH_STEP_INFO_H_
#define PTQWATCH_STEP_INFO_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch {

/// Phase of the learning-rate schedule. Journals store the names: values may be added but not
/// renumbered.
enum class LrPhase {
  kUnknown = 0,
  kWarmup = 1,     ///< rising since the first step
  kStable = 2,     ///< constant
  kDecay = 3,      ///< falling towards its end: the phase in which quantization error jumps
  kSlowDecay = 4,  ///< falling so slowly that zero is far away (the first half of a cosine)
  kRewarm = 5,     ///< rising again after a decay
};

/// "unknown", "warmup", "stable", "decay", "slow_decay", "rewarm".
PTQWATCH_EXPORT std::string_view ToString(LrPhase phase);
/// InvalidArgument, listing the known names, for any other name.
PTQWATCH_EXPORT absl::StatusOr<LrPhase> ParseLrPhase(std::string_view name);

/// A trainer's report after each optimizer step. With gradient accumulation a step is an optimizer
/// step, not a micro-batch.
struct StepInfo {
  /// Optimizer steps done so far; need not be consecutive. A smaller number than before counts as a
  /// rollback.
  int64_t step = 0;
  /// The learning rate used for this step. In a run that never gives one the phase is unknown, and
  /// no alarm is raised for a decay.
  std::optional<double> learning_rate = std::nullopt;
  /// Tokens (or samples) seen so far: the x-axis of plots.
  std::optional<int64_t> tokens = std::nullopt;
  /// Training loss of this step in nats, if the trainer has it on the host already.
  std::optional<double> loss = std::nullopt;
  /// Overrides the phase that is otherwise inferred from the learning rates.
  std::optional<LrPhase> phase = std::nullopt;
};

/// A corner of the schedule: from this step on the learning rate follows a new straight line.
struct LrChangePoint {
  int64_t step = 0;
  double learning_rate = 0;
  friend bool operator==(const LrChangePoint&, const LrChangePoint&) = default;
};

/// The reason for a snapshot.
enum class SnapshotTrigger { kUnknown = 0, kInterval = 1, kRequest = 2, kFinish = 3 };

/// "unknown", "interval", "request", "finish".
PTQWATCH_EXPORT std::string_view ToString(SnapshotTrigger trigger);
PTQWATCH_EXPORT absl::StatusOr<SnapshotTrigger> ParseSnapshotTrigger(std::string_view name);

}  // namespace ptqwatch

#endif  // PTQWATCH_STEP_INFO_H_
