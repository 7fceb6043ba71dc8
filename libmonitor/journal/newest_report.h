#ifndef PTQWATCH_JOURNAL_NEWEST_REPORT_H_
#define PTQWATCH_JOURNAL_NEWEST_REPORT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The last report of a run directory's journal, found from its end: a megabyte is read, however
/// long the journal is, unless the last lines are longer. Absent if there is none in the last 64
/// MiB. A failure has the status of errno and names the path.
absl::StatusOr<std::optional<AnalyzedReport>> ReadNewestReport(const std::string& run_dir);

/// The highest attempt in the newest reports of the ranks that have a directory in `run_dir`: the
/// newest launch that has reported. 0 if none has. Reads the journals of the first eight ranks and
/// ignores errors.
int NewestAttemptAmongRanks(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_NEWEST_REPORT_H_
