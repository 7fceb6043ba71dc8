#ifndef PTQWATCH_HANDOVER_SNAPSHOT_HEADER_H_
#define PTQWATCH_HANDOVER_SNAPSHOT_HEADER_H_

#include <cstdint>

#include "ptqwatch/report.h"
#include "ptqwatch/step_info.h"
#include "report/lr_state.h"

namespace ptqwatch::internal {

/// When and why a snapshot was taken. Plain data, so that another process can read it.
struct SnapshotHeader {
  StepInfo info = {};
  LrState lr = {};
  SnapshotTrigger trigger = SnapshotTrigger::kUnknown;
  bool additional = false;  ///< due only because the learning rate decays
  /// How often the step number had gone back or stayed: tells two snapshots of one step apart.
  int64_t pass = 0;
  double unix_seconds = 0;
};

/// Returns whether the plain schedule or Finish took the snapshot. Which steps these are does not
/// depend on requests or on the monitor's speed.
inline bool IsRegular(const SnapshotHeader& header) {
  return !header.additional && header.trigger != SnapshotTrigger::kRequest;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SNAPSHOT_HEADER_H_
