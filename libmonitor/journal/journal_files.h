#ifndef PTQWATCH_JOURNAL_JOURNAL_FILES_H_
#define PTQWATCH_JOURNAL_JOURNAL_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

inline constexpr char kJournalFileName[] = "journal.jsonl";

/// The number of the file with this name among the older parts of a journal, "journal-000001.jsonl"
/// and so on, or 0.
int64_t OlderPartNumber(const std::string& name);
std::string OlderPartName(int64_t number);

/// The paths of a run directory's journal, oldest part first and journal.jsonl, whether or not it
/// exists, last. The status of errno where the directory exists and cannot be listed.
absl::StatusOr<std::vector<std::string>> JournalPaths(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_FILES_H_
