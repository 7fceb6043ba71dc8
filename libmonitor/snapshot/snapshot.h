#ifndef PTQWATCH_SNAPSHOT_SNAPSHOT_H_
#define PTQWATCH_SNAPSHOT_SNAPSHOT_H_

#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "handover/snapshot_header.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// The optimizer's state at a snapshot.
struct OptimizerState {
  /// The requested parameters under their canonical names. The second moments are copies in the
  /// monitor's own memory.
  std::optional<OptimizerView> view;
  /// If the trainer passes an optimizer but `view` is empty: the reason.
  std::string problem;
};

/// All parameters and buffers as they were at one step boundary, in the monitor's own memory.
struct Snapshot {
  SnapshotHeader header;
  double stall_seconds = 0;         ///< how long OnStep blocked the trainer's thread
  std::vector<at::Tensor> tensors;  ///< one for each entry of the live TensorTable, contiguous
  OptimizerState optimizer;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_SNAPSHOT_H_
