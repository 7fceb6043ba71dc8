#ifndef PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
#define PTQWATCH_JOURNAL_RUN_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

inline constexpr char kJournalFileName[] = "journal.jsonl";

/// What a run directory remembers of earlier attempts.
struct RunHistory {
  std::string run_id;                   ///< of the newest line; empty for a new run
  int attempts = 0;                     ///< highest attempt seen
  int64_t last_sequence = 0;            ///< highest sequence seen
  std::vector<AnalyzedReport> reports;  ///< in file order
  int64_t unreadable_lines = 0;         ///< cut off or damaged, skipped
};

/// Creates `run_dir` if it is missing and reads its journal if it has one. PermissionDenied or
/// another status naming the path where that fails; damaged lines do not make it fail.
absl::StatusOr<RunHistory> OpenRunDirectory(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
