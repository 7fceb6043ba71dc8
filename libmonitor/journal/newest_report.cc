#include "journal/newest_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/input_file.h"
#include "base/status_macros.h"
#include "journal/journal_files.h"
#include "journal/line_reader.h"
#include "journal/rank_directory.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kFirstLook = int64_t{1} << 20;
constexpr int64_t kLastLook = int64_t{64} << 20;
constexpr size_t kAskedRanks = 8;

// The last report among whole lines.
std::optional<AnalyzedReport> LastReportOf(std::string_view lines) {
  std::optional<AnalyzedReport> last;
  LineReader reader({.report = [&](AnalyzedReport report) { last = std::move(report); },
                     .event = nullptr,
                     .unreadable = [] {}});
  while (!last && !lines.empty()) {
    const size_t before = lines.substr(0, lines.size() - 1).rfind('\n');  // npos + 1 is 0
    reader.Add(lines.substr(before + 1));
    lines = lines.substr(0, before + 1);
  }
  return last;
}

absl::StatusOr<std::optional<AnalyzedReport>> NewestOf(const InputFile& file) {
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  for (int64_t look = kFirstLook; look <= kLastLook; look *= 8) {
    const int64_t begin = std::max<int64_t>(size - look, 0);
    PTQWATCH_ASSIGN_OR_RETURN(const std::string bytes,
                              file.ReadAt(begin, static_cast<size_t>(size - begin)));
    std::string_view lines = bytes;
    lines = lines.substr(0, lines.rfind('\n') + 1);  // being written
    if (begin > 0) lines = lines.substr(std::min(lines.size(), lines.find('\n') + 1));  // cut
    std::optional<AnalyzedReport> last = LastReportOf(lines);
    if (last || begin == 0) return last;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<AnalyzedReport>> ReadNewestReport(const std::string& run_dir) {
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<std::string> paths, JournalPaths(run_dir));
  std::reverse(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    const absl::StatusOr<InputFile> file = InputFile::Open(path);
    if (absl::IsNotFound(file.status())) continue;
    PTQWATCH_RETURN_IF_ERROR(file.status());
    PTQWATCH_ASSIGN_OR_RETURN(std::optional<AnalyzedReport> newest, NewestOf(*file));
    if (newest) return newest;
  }
  return std::nullopt;
}

int NewestAttemptAmongRanks(const std::string& run_dir) {
  std::vector<int64_t> ranks = RanksIn(run_dir);
  ranks.resize(std::min(ranks.size(), kAskedRanks));
  int attempt = 0;
  for (const int64_t rank : ranks) {
    const auto newest = ReadNewestReport(RankDirectory(run_dir, rank));
    if (newest.ok() && *newest) attempt = std::max(attempt, (*newest)->report.attempt);
  }
  return attempt;
}

}  // namespace ptqwatch::internal
