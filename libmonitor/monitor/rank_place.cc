#include "monitor/rank_place.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/journal_files.h"
#include "journal/rank_directory.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kMostRanks = 1'000'000;

struct RankVariables {
  const char* rank;
  const char* ranks;
  bool rank_alone = false;  ///< `rank` without `ranks` says nothing
};
// A launcher's own variables take precedence over the batch system's. Slurm sets SLURM_PROCID and
// SLURM_NTASKS in a batch script and an interactive shell too, but SLURM_STEP_NUM_TASKS only inside
// a job step.
constexpr RankVariables kRankVariables[] = {{"RANK", "WORLD_SIZE"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true}};

absl::Status BadPlace(std::string_view name, std::string_view value, std::string_view expected,
                      std::string_view instead) {
  return absl::InvalidArgumentError(StrCat(name, " = ", value, ": must be ", expected, instead));
}

// `names` of the two numbers, for messages.
absl::StatusOr<RankPlace> CheckPlace(RankPlace place, const RankVariables& names,
                                     std::string_view instead) {
  if (place.ranks < 1 || place.ranks > kMostRanks) {
    return BadPlace(names.ranks, StrCat(place.ranks), StrCat("from 1 to ", kMostRanks), instead);
  }
  if (place.rank < 0 || place.rank >= place.ranks) {
    return BadPlace(names.rank, StrCat(place.rank),
                    StrCat("from 0 to ", names.ranks, " - 1 = ", place.ranks - 1), instead);
  }
  return place;
}

constexpr std::string_view kSetInstead =
    "; or set MonitorOptions.rank and ranks, or ranks_from_environment = false";

absl::StatusOr<int64_t> NumberOf(const char* name, const char* text) {
  if (text == nullptr) return BadPlace(name, "(unset)", "a number", kSetInstead);
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return BadPlace(name, StrCat("'", text, "'"), "a number", kSetInstead);
  }
  return number;
}

absl::StatusOr<RankPlace> FromEnvironment(GetVariable variable) {
  const auto set = [&](const char* name) -> const char* {
    const char* const text = variable(name);
    return text == nullptr || *text == '\0' ? nullptr : text;
  };
  for (const RankVariables& names : kRankVariables) {
    const char* const rank = set(names.rank);
    const char* const ranks = set(names.ranks);
    if (ranks == nullptr && (rank == nullptr || names.rank_alone)) continue;
    RankPlace place;
    PTQWATCH_ASSIGN_OR_RETURN(place.rank, NumberOf(names.rank, rank));
    PTQWATCH_ASSIGN_OR_RETURN(place.ranks, NumberOf(names.ranks, ranks));
    return CheckPlace(place, names, kSetInstead);
  }
  return RankPlace();
}

}  // namespace

absl::StatusOr<RankPlace> FindRankPlace(const MonitorOptions& options, GetVariable variable) {
  constexpr RankVariables kOptions = {"MonitorOptions.rank", "MonitorOptions.ranks"};
  if (options.rank && options.ranks) {
    return CheckPlace({*options.rank, *options.ranks}, kOptions, "");
  }
  if (options.rank) return BadPlace(kOptions.ranks, "(unset)", "set with MonitorOptions.rank", "");
  if (options.ranks) return BadPlace(kOptions.rank, "(unset)", "set with MonitorOptions.ranks", "");
  return options.ranks_from_environment ? FromEnvironment(variable) : RankPlace();
}

absl::Status EnterRank(MonitorOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(const RankPlace place,
                            FindRankPlace(options, [](const char* name) { return getenv(name); }));
  options.rank.reset();
  options.ranks.reset();
  const std::string& run_dir = options.run_dir;
  std::error_code ignored;
  const std::string first = RankDirectory(run_dir, 0);
  const bool had_ranks = !run_dir.empty() && std::filesystem::is_directory(first, ignored);
  if (place.ranks == 1 && !had_ranks) return absl::OkStatus();
  if (place.ranks > 1 && !run_dir.empty() &&
      std::filesystem::exists(StrCat(run_dir, "/", kJournalFileName), ignored)) {
    return absl::FailedPreconditionError(StrCat("MonitorOptions.run_dir = '", run_dir,
                                                "' has the run of a single trainer, and this "
                                                "is one of ",
                                                place.ranks,
                                                ": give these ranks a directory of their own"));
  }
  options.rank = place.rank;
  options.ranks = place.ranks;
  if (!run_dir.empty()) options.run_dir = RankDirectory(run_dir, place.rank);
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
