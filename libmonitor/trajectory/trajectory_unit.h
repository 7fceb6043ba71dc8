#ifndef PTQWATCH_TRAJECTORY_TRAJECTORY_UNIT_H_
#define PTQWATCH_TRAJECTORY_TRAJECTORY_UNIT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "trajectory/checkpoint.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/lr_history.h"
#include "trajectory/lr_schedule.h"

namespace ptqwatch::internal {

/// A checkpoint to measure, and what its report depends on beside its weights.
struct TrajectoryUnit {
  Checkpoint checkpoint = {};
  LrAtCheckpoint rate = {};
  /// The newest checkpoints of the branch, this one last, whose mean is measured too; empty: none.
  std::vector<Checkpoint> window = {};
};

/// `checkpoints` are sorted by branch and step. `average`: largest number of checkpoints in a
/// window; 0: no windows. Units whose checkpoint has no path, because only its report is left, are
/// part of the series, but in no window.
std::vector<TrajectoryUnit> PlanUnits(absl::Span<const Checkpoint> checkpoints,
                                      const LrSchedules& schedules, int64_t average);

/// Fills in the fields that do not come from measuring: step, branch, tokens, learning rate, phase,
/// source and time.
void FillHeader(const TrajectoryUnit& unit, Report& report);

/// Measures a unit: the checkpoint and, with at least two checkpoints in its window, their mean, as
/// AveragingReport with `average` as its window. A checkpoint that is not finite gives a report
/// that says so. Errors name the checkpoint. Errors of a mean, except Cancelled, are in its report.
absl::StatusOr<Report> MeasureUnit(const TrajectoryUnit& unit, int64_t average,
                                   CheckpointMeter& meter,
                                   const std::function<void(const MeterProgress&)>& progress,
                                   const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TRAJECTORY_UNIT_H_
