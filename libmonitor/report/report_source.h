#ifndef PTQWATCH_REPORT_REPORT_SOURCE_H_
#define PTQWATCH_REPORT_REPORT_SOURCE_H_

namespace ptqwatch::internal {

/// Report::source of reports that were measured from a run's checkpoints.
inline constexpr char kTrajectorySource[] = "trajectory";

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_REPORT_SOURCE_H_
