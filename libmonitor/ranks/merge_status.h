#ifndef PTQWATCH_RANKS_MERGE_STATUS_H_
#define PTQWATCH_RANKS_MERGE_STATUS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// One rank of a run, as its files show it.
struct RankView {
  int64_t rank = 0;
  std::optional<RunStatus> status;       ///< absent: it has no directory or no status file
  std::optional<int64_t> snapshot_step;  ///< of its newest report, if known
};

/// Merges the statuses of a run's ranks: adds counters, takes steps from the furthest rank, and
/// other members from the lowest rank that runs. The run is degraded if a rank is, and its reason
/// names the ranks. A rank of another run than the lowest rank's, or with another fingerprint in
/// the same attempt, also counts as degraded, because its reports are left out. The run is over
/// once all ranks are, or are silent, and one of them has said so. REQUIRES: `ranks` is
/// ascending.
RunStatus MergeStatus(const std::vector<RankView>& ranks);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_MERGE_STATUS_H_
