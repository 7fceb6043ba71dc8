#include "journal/rank_directory.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kRankPrefix = "rank-";

}  // namespace

std::string RankDirectory(const std::string& run_dir, int64_t rank) {
  return StrFormat("%s/%s%04d", run_dir, kRankPrefix, rank);
}

std::vector<int64_t> RanksIn(const std::string& run_dir) {
  std::vector<int64_t> ranks;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(run_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t rank = 0;
    std::error_code ignored;
    // Only a name that RankDirectory gives: not "rank-+003" or "rank-00003".
    if (name.starts_with(kRankPrefix) && absl::SimpleAtoi(name.substr(kRankPrefix.size()), &rank) &&
        rank >= 0 && StrFormat("%s%04d", kRankPrefix, rank) == name &&
        entry->is_directory(ignored)) {
      ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace ptqwatch::internal
