#ifndef PTQWATCH_JOURNAL_JOURNAL_FILES_H_
#define PTQWATCH_JOURNAL_JOURNAL_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

inline constexpr char kJournalFileName[] = "journal.jsonl";

/// The number of an older part of a journal, called "journal-000001.jsonl" and so on, or 0 if
/// `name` is not one.
int64_t OlderPartNumber(const std::string& name);
std::string OlderPartName(int64_t number);

/// The paths of a run directory's journal: its older parts, oldest first, and then journal.jsonl,
/// even if it does not exist. The status of errno if the directory exists but cannot be listed.
absl::StatusOr<std::vector<std::string>> JournalPaths(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_FILES_H_
