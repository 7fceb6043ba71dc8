#ifndef PTQWATCH_TRAJECTORY_MEASURE_PART_H_
#define PTQWATCH_TRAJECTORY_MEASURE_PART_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/execution_context.h"
#include "trajectory/checkpoint.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/measure_trajectory.h"
#include "trajectory/trajectory_settings.h"

namespace ptqwatch::internal {

/// Measures checkpoint `number` of `checkpoints` alone, for MeasureTrajectory to merge. Does not
/// lock the run directory, so many processes may measure different ones at once. Returns false if
/// its report is there already, in the journal or as a part.
///
/// Errors: those of MeasureUnit and KeepSettings, FailedPrecondition if the part's file has another
/// checkpoint, the system's. REQUIRES: 0 <= number < checkpoints.size().
absl::StatusOr<bool> MeasurePart(const std::string& run_dir, int64_t number,
                                 absl::Span<const Checkpoint> checkpoints,
                                 const TrajectorySettings& settings,
                                 const TrajectoryOptions& options, CheckpointMeter& meter,
                                 const TrajectoryListener& listener,
                                 const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_MEASURE_PART_H_
