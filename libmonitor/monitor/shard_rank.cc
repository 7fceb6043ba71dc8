#include "monitor/shard_rank.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/guard.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "staging/shard_address.h"

namespace ptqwatch::internal {
namespace {

// The rank on this host, and the number of ranks there.
constexpr std::pair<const char*, const char*> kLocalVariables[] = {
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};
constexpr const char* kHostVariables[] = {"GROUP_RANK", "SLURM_NODEID"};
// Launchers set them alike in all processes of a launch.
constexpr const char* kJobVariables[] = {"MASTER_ADDR",         "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                         "SLURM_JOB_ID",        "SLURM_STEP_ID"};

std::string TextOf(GetVariable variable, const char* name) {
  const char* const text = variable(name);
  return text == nullptr ? "" : text;
}

// (rank on this host, ranks there).
absl::StatusOr<std::pair<int64_t, int64_t>> LocalPlace(RankPlace place, GetVariable variable) {
  for (const auto& [rank_name, ranks_name] : kLocalVariables) {
    const std::string rank_text = TextOf(variable, rank_name);
    const std::string ranks_text = TextOf(variable, ranks_name);
    if (rank_text.empty() || ranks_text.empty()) continue;
    int64_t rank = 0;
    int64_t ranks = 0;
    if (!absl::SimpleAtoi(rank_text, &rank) || !absl::SimpleAtoi(ranks_text, &ranks) || rank < 0 ||
        rank >= ranks || place.ranks % ranks != 0) {
      return absl::InvalidArgumentError(StrCat(rank_name, " = '", rank_text, "' and ", ranks_name,
                                               " = '", ranks_text, "' of ", place.ranks,
                                               " ranks: each host must have as many"));
    }
    return std::pair(rank, ranks);
  }
  return std::pair(place.rank, place.ranks);
}

absl::StatusOr<int64_t> HostOf(RankPlace place, int64_t local_rank, int64_t local_ranks,
                               GetVariable variable) {
  const int64_t hosts = place.ranks / local_ranks;
  for (const char* const name : kHostVariables) {
    const std::string text = TextOf(variable, name);
    if (text.empty()) continue;
    int64_t host = 0;
    if (absl::SimpleAtoi(text, &host) && host >= 0 && host < hosts) return host;
    return absl::InvalidArgumentError(StrCat(name, " = '", text, "': must be from 0 to ", hosts - 1,
                                             ", because ", place.ranks, " ranks are on hosts of ",
                                             local_ranks));
  }
  if (place.rank % local_ranks == local_rank) return place.rank / local_ranks;
  return absl::InvalidArgumentError(StrCat(
      "rank ", place.rank, " is number ", local_rank, " of ", local_ranks,
      " on its host, so ranks are not numbered host by host: set GROUP_RANK to the host's number"));
}

}  // namespace

absl::StatusOr<bool> IsSharded(const Subject& subject) {
  return Guard([&]() -> absl::StatusOr<bool> {
    const std::vector<NamedTensor> live = subject.LiveTensors();
    return std::any_of(live.begin(), live.end(),
                       [](const NamedTensor& named) { return !named.global_shape.empty(); });
  });
}

absl::StatusOr<ShardRank> FindShardRank(RankPlace place, const std::string& run_dir,
                                        GetVariable variable) {
  static std::atomic<int64_t> calls{0};
  const int64_t call = calls.fetch_add(1);
  if (run_dir.empty()) {
    return absl::InvalidArgumentError(
        "run_dir is empty: the model is sharded over ranks, which find each other in run_dir");
  }
  PTQWATCH_ASSIGN_OR_RETURN(const auto local, LocalPlace(place, variable));
  ShardRank shard{.place = {.directory = StrCat(run_dir, "/shards"),
                            .rank = place.rank,
                            .local_ranks = local.second,
                            .hosts = place.ranks / local.second},
                  .measures = local.first == 0};
  PTQWATCH_ASSIGN_OR_RETURN(shard.place.host, HostOf(place, local.first, local.second, variable));
  for (const char* const name : kJobVariables) shard.place.job += TextOf(variable, name) + ":";
  shard.place.job += StrCat(place.ranks, ":", call);
  return shard;
}

absl::StatusOr<ShardRank> EnterShard(MonitorOptions& options) {
  const auto variable = [&](const char* name) -> const char* {
    return options.ranks_from_environment ? getenv(name) : nullptr;
  };
  PTQWATCH_ASSIGN_OR_RETURN(const RankPlace place, FindRankPlace(options, variable));
  PTQWATCH_ASSIGN_OR_RETURN(ShardRank shard, FindShardRank(place, options.run_dir, variable));
  options.rank.reset();
  options.ranks.reset();
  if (shard.place.hosts > 1) {
    options.rank = shard.place.host;
    options.ranks = shard.place.hosts;
  }
  options.ranks_from_environment = false;
  if (!shard.measures) options.serve.reset();
  return shard;
}

void RefuseShard(const ShardPlace& place, std::string_view why) {
  ShardAddress::Refuse(place, why);
  // Never destroyed: the end of the process is what it waits for.
  new AtProcessEnd([place] { ShardAddress::WithdrawRefusal(place); });
}

std::string ShardProblem(const ShardPlace& place) {
  const ShardsFound found = FindShards(place);
  if (found.refusals.empty()) return "";
  const auto& [rank, why] = *found.refusals.begin();
  return StrCat("rank ", rank, " does not share its part of the model: ", why);
}

}  // namespace ptqwatch::internal
