#ifndef PTQWATCH_MONITOR_SHARD_RANK_H_
#define PTQWATCH_MONITOR_SHARD_RANK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "monitor/rank_place.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"
#include "staging/manifest.h"

namespace ptqwatch::internal {

/// A rank of a model that is sharded over ranks.
struct ShardRank {
  ShardPlace place;
  bool measures = true;  ///< the first rank of its host, which starts the process that measures
};

/// Whether `subject` lists parts (NamedTensor::global_shape). Errors are its exceptions.
absl::StatusOr<bool> IsSharded(const Subject& subject);

/// The rank at `place`, with the variables by which launchers say which ranks are on one host;
/// without any, all are. `run_dir` is that of the run. Each call counts: ranks must make their
/// monitors in the same order. InvalidArgument if `run_dir` is empty, or for variables that
/// contradict the place, naming them.
absl::StatusOr<ShardRank> FindShardRank(RankPlace place, const std::string& run_dir,
                                        GetVariable variable);

/// Settles the place of this rank in `options`, before EnterRank: `rank` and `ranks` become those
/// of the host, and only a rank that measures serves. Errors are those of FindRankPlace and
/// FindShardRank.
absl::StatusOr<ShardRank> EnterShard(MonitorOptions& options);

/// Tells the other ranks, which would wait, why this one has no monitor. Withdrawn at the end of
/// the process.
void RefuseShard(const ShardPlace& place, std::string_view why);

/// The refusal of another rank; empty if there is none.
std::string ShardProblem(const ShardPlace& place);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SHARD_RANK_H_
