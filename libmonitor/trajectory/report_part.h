#ifndef PTQWATCH_TRAJECTORY_REPORT_PART_H_
#define PTQWATCH_TRAJECTORY_REPORT_PART_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// A report that a process of its own has measured, to be merged into the journal: a line of JSON
/// in RUN_DIR/part-K.jsonl, without a place in the run and without a verdict.
struct ReportPart {
  std::string path;
  Report report;
};

/// RUN_DIR/part-K.jsonl.
std::string PartPath(const std::string& run_dir, int64_t number);
/// Writes it whole or not at all, and waits for the disk.
absl::Status WritePart(const std::string& path, const Report& report);
/// Errors name the path: the status of errno, or InvalidArgument for a damaged file.
absl::StatusOr<ReportPart> ReadPart(const std::string& path);

/// By branch and step.
using ReportParts = std::map<std::pair<std::string, int64_t>, ReportPart>;
/// All parts of a run directory, which may be missing. Errors as above.
absl::StatusOr<ReportParts> ReadParts(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_REPORT_PART_H_
