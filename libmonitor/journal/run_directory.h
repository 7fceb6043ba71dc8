#ifndef PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
#define PTQWATCH_JOURNAL_RUN_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "journal/journal_files.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What earlier attempts of a run left in its journal.
struct RunHistory {
  std::string run_id;         ///< of the newest line; empty for a new run
  int attempts = 0;           ///< highest attempt seen
  int64_t last_sequence = 0;  ///< highest sequence seen
  /// In file order, without what they say of single layers: the newest 20,000 at least.
  std::vector<AnalyzedReport> reports;
  int64_t unreadable_lines = 0;  ///< cut off or damaged, and skipped
};

/// Reads the reports of a run directory's journal, if it has one; events are skipped. Of a journal
/// in parts, only the newest parts are read, as many as hold 256 MiB. A failure has the status of
/// errno and names the path. Damaged lines are no failure.
absl::StatusOr<RunHistory> ReadRunDirectory(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_DIRECTORY_H_
