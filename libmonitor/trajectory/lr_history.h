#ifndef PTQWATCH_TRAJECTORY_LR_HISTORY_H_
#define PTQWATCH_TRAJECTORY_LR_HISTORY_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "report/lr_state.h"
#include "trajectory/checkpoint.h"
#include "trajectory/lr_schedule.h"

namespace ptqwatch::internal {

/// The learning rate at a checkpoint, and its schedule up to there.
struct LrAtCheckpoint {
  std::optional<double> learning_rate;  ///< absent if it is unknown
  LrState lr;                           ///< phase unknown without a rate
};

/// The rate at each checkpoint: from the manifest, else from the branch's schedule, else the last
/// one that the trainer logged up to its step. Never a guess. Follows each branch with an
/// LrTracker of its own, through every step of a schedule and every rate that a trainer logged, so
/// phases and onsets are those of a live run.
///
/// `checkpoints` are sorted by branch and step. Cost: 20 ns for each step of a schedule.
std::vector<LrAtCheckpoint> FollowRates(absl::Span<const Checkpoint> checkpoints,
                                        const LrSchedules& schedules);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_LR_HISTORY_H_
