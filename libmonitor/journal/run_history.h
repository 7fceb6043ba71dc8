#ifndef PTQWATCH_JOURNAL_RUN_HISTORY_H_
#define PTQWATCH_JOURNAL_RUN_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "journal/journal_files.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The past of a run according to its journal.
struct RunHistory {
  std::string run_id;         ///< of the newest line; empty for a new run
  int attempts = 0;           ///< highest attempt seen
  int64_t last_sequence = 0;  ///< highest sequence seen
  /// In file order, without per-layer results; at least the newest 20,000.
  std::vector<AnalyzedReport> reports;
  int64_t unreadable_lines = 0;  ///< truncated or damaged, and skipped
};

/// Reads the reports of a run directory's journal, if it has one; events are skipped. If a journal
/// has several parts, only the newest ones are read, up to 256 MiB. A failure has the status of
/// errno and names the path. Damaged lines are not a failure.
absl::StatusOr<RunHistory> ReadRunHistory(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RUN_HISTORY_H_
