#ifndef PTQWATCH_MONITOR_RANK_PLACE_H_
#define PTQWATCH_MONITOR_RANK_PLACE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// The place of this process among the trainers of a run.
struct RankPlace {
  int64_t rank = 0;
  int64_t ranks = 1;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// As getenv.
using GetVariable = absl::FunctionRef<const char*(const char* name)>;

/// The place by MonitorOptions::rank and ranks, else by the environment of a launcher if the
/// options allow it, else alone. InvalidArgument naming the option or the variable and its value,
/// also if only one of a pair is set.
absl::StatusOr<RankPlace> FindRankPlace(const MonitorOptions& options, GetVariable variable);

/// Settles the place in `options`: sets `rank` and `ranks`, or neither for a trainer alone, and
/// makes `run_dir` the directory of this rank. A trainer alone continues in the directory of rank 0
/// if its `run_dir` holds one. Errors are those of FindRankPlace; FailedPrecondition if `run_dir`
/// holds the run of a trainer alone and there are several.
absl::Status EnterRank(MonitorOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RANK_PLACE_H_
