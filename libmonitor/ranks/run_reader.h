#ifndef PTQWATCH_RANKS_RUN_READER_H_
#define PTQWATCH_RANKS_RUN_READER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "journal/line_reader.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/status.h"
#include "ranks/rank_journals.h"

namespace ptqwatch::internal {

/// Reads the status and the journal of a run directory, or of the directories of its ranks as one
/// run. One thread at a time.
class RunReader {
 public:
  virtual ~RunReader() = default;

  /// NotFound if there is no status file yet; another error names the path.
  virtual absl::Status ReadStatus() = 0;
  /// Reads some lines, from the beginning of the journal, and passes them on. True if more can be
  /// read at once.
  virtual absl::StatusOr<bool> ReadJournal() = 0;
  /// Reads to the end of the journal.
  absl::Status ReadToEnd();

  /// Whether anything of the run was read.
  virtual bool known() const = 0;
  /// As DirectoryStatus::undecided.
  virtual bool undecided() const = 0;
  /// With an empty name. REQUIRES: known().
  virtual RunStatus status() const = 0;
};

/// `clock` must outlive the reader. For a run with several ranks, verdicts are recomputed for the
/// merged reports, which come when `wait` says, and an event announces an alarm that begins or
/// ends.
std::unique_ptr<RunReader> MakeRunReader(const std::string& run_dir, Clock* clock,
                                         LineHandlers handlers, RankJournals::Wait wait);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_RANKS_RUN_READER_H_
