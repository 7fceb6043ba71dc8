#ifndef PTQWATCH_JOURNAL_MERGE_STATUS_H_
#define PTQWATCH_JOURNAL_MERGE_STATUS_H_

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

/// The status of a run from those of its ranks: counters are added, steps are those of the furthest
/// rank, and other members those of the lowest rank that runs. The run is degraded if a rank is,
/// and its reason names the ranks. So is a rank that is of another run than the lowest rank, or has
/// another fingerprint in the same attempt, because its reports are left out. The run is over once
/// all ranks are, or show no sign of life, and one of them has said so. REQUIRES: `ranks` is
/// ascending.
RunStatus MergeStatus(const std::vector<RankView>& ranks);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_MERGE_STATUS_H_
