#ifndef PTQWATCH_TRAJECTORY_MEASURE_TRAJECTORY_H_
#define PTQWATCH_TRAJECTORY_MEASURE_TRAJECTORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "trajectory/checkpoint.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/lr_schedule.h"
#include "trajectory/report_part.h"
#include "trajectory/trajectory_run.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::internal {

/// Receives the progress of a trajectory. Functions may be empty.
struct TrajectoryListener {
  /// Before unit `number` of `of` (from 1) is measured.
  std::function<void(const TrajectoryUnit& unit, int64_t number, int64_t of)> begin = nullptr;
  std::function<void(const MeterProgress&)> progress = nullptr;
  std::function<void(const AnalyzedReport&)> report = nullptr;
  std::function<void(std::string_view)> notice = nullptr;
};

struct TrajectoryOptions {
  LrSchedules schedules = {};
  int64_t average = 0;      ///< checkpoints of a mean; 0: none
  bool only_merge = false;  ///< takes reports from parts, and measures nothing
  /// Goes on if a checkpoint is removed while it is measured, or has a damaged file.
  bool skip_removed = false;
};

/// Measures those of `checkpoints`, sorted by branch and step, that the journal does not have, in
/// that order, and adds their reports to it. A report that waits as a part is taken instead, and
/// the part removed. Checkpoints that only the journal knows are part of their branch's schedule.
///
/// Errors: those of MeasureUnit and of the run, InvalidArgument if a checkpoint is of another model
/// than `facts`. A checkpoint that is being measured leaves no trace then.
absl::Status MeasureTrajectory(absl::Span<const Checkpoint> checkpoints, const ModelFacts& facts,
                               const TrajectoryOptions& options, CheckpointMeter& meter,
                               TrajectoryRun& run, const TrajectoryListener& listener,
                               const ExecutionContext& context);

/// InvalidArgument, naming the checkpoint, unless all are of the model of `facts`. Reads their
/// config.json.
absl::Status CheckSameModel(absl::Span<const Checkpoint> checkpoints, const ModelFacts& facts,
                            CheckpointMeter& meter);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_MEASURE_TRAJECTORY_H_
