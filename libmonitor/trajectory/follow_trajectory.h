#ifndef PTQWATCH_TRAJECTORY_FOLLOW_TRAJECTORY_H_
#define PTQWATCH_TRAJECTORY_FOLLOW_TRAJECTORY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "trajectory/checkpoint.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/measure_trajectory.h"

namespace ptqwatch::internal {

/// Looks for checkpoints in folders that a trainer is filling.
class CheckpointWatch {
 public:
  /// `folders` as ListCheckpoints takes them. `notice` gets a line for each entry that Poll has
  /// left out for one reason kLooksUntilTold times in a row: no trainer takes so long to write it.
  explicit CheckpointWatch(std::vector<std::string> folders,
                           std::function<void(std::string_view)> notice = nullptr)
      : folders_(std::move(folders)), notice_(std::move(notice)) {}

  /// Lists the complete checkpoints whose files have not changed since the previous call, sorted by
  /// branch and step. Errors are those of ListCheckpoints.
  absl::StatusOr<std::vector<Checkpoint>> Poll();

  static constexpr int kLooksUntilTold = 60;  ///< five minutes

 private:
  const std::vector<std::string> folders_;
  const std::function<void(std::string_view)> notice_;
  std::map<std::string, int> left_out_;        // how often in a row, by line
  std::map<std::string, std::string> states_;  // of each checkpoint's folder, at the last call
};

/// Time between two looks.
inline constexpr std::chrono::seconds kFollowInterval{5};

/// Looks every kFollowInterval until there is a checkpoint that can be read, and returns the first
/// one with its facts, because the trainer may remove it at any time. `notice` gets a line for each
/// damaged one. Errors are those of CheckpointMeter::Facts for any other checkpoint that is still
/// there; Cancelled once the context is.
absl::StatusOr<std::pair<Checkpoint, ModelFacts>> WaitForCheckpoint(
    CheckpointWatch& watch, CheckpointMeter& meter,
    const std::function<void(std::string_view)>& notice, const ExecutionContext& context);

/// Measures checkpoints as they appear, until the run has a report of step `until` or later. Looks
/// every kFollowInterval. Errors are those of MeasureTrajectory; Cancelled once the context is.
absl::Status FollowTrajectory(CheckpointWatch& watch, std::optional<int64_t> until,
                              const ModelFacts& facts, TrajectoryOptions options,
                              CheckpointMeter& meter, TrajectoryRun& run,
                              const TrajectoryListener& listener, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_FOLLOW_TRAJECTORY_H_
