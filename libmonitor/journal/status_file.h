#ifndef PTQWATCH_JOURNAL_STATUS_FILE_H_
#define PTQWATCH_JOURNAL_STATUS_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "report/status_json.h"

namespace ptqwatch::internal {

inline constexpr char kStatusFileName[] = "status.json";

/// Replaces the status file of a run directory: readers see either the old or the new file. Does
/// not wait for the disk. Errors are the system's and name the path.
absl::Status WriteStatusFile(const std::string& run_dir, const RunStatus& status);

/// NotFound if there is no status file yet, InvalidArgument if it is damaged, otherwise the status
/// of errno; all messages name the path.
absl::StatusOr<RunStatus> ReadStatusFile(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_STATUS_FILE_H_
