#ifndef PTQWATCH_TRAINER_STEP_OUTCOME_H_
#define PTQWATCH_TRAINER_STEP_OUTCOME_H_

#include <cstdint>
#include <optional>

#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// The decisions of OnStep at a step. Plain data, so that another process can read it.
struct StepOutcome {
  double now = 0;          ///< monotonic time in seconds
  bool measuring = false;  ///< a snapshot was being measured
  /// Steps since the previous outcome that were ignored.
  int64_t ignored = 0;
  /// Set if a snapshot was due or requested. The members below then describe it.
  std::optional<SnapshotResult> result = {};
  SnapshotTrigger trigger = SnapshotTrigger::kUnknown;
  bool additional = false;  ///< due only because the learning rate decays
  double unix_seconds = 0;
  double stall_seconds = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAINER_STEP_OUTCOME_H_
