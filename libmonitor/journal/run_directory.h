#ifndef PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
#define PTQWATCH_JOURNAL_RUN_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

inline constexpr char kJournalFileName[] = "journal.jsonl";

/// What earlier attempts of a run left in its journal.
struct RunHistory {
  std::string run_id;                   ///< of the newest line; empty for a new run
  int attempts = 0;                     ///< highest attempt seen
  int64_t last_sequence = 0;            ///< highest sequence seen
  std::vector<AnalyzedReport> reports;  ///< in file order
  int64_t unreadable_lines = 0;         ///< cut off or damaged, and skipped
};

/// Reads the reports of a run directory's journal, if it has one; events are skipped. A failure has
/// the status of errno and names the path. Damaged lines are no failure.
absl::StatusOr<RunHistory> ReadRunDirectory(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
