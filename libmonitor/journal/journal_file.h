#ifndef PTQWATCH_JOURNAL_JOURNAL_FILE_H_
#define PTQWATCH_JOURNAL_JOURNAL_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// write(2), or a test's replacement.
using WriteFunction = std::function<ssize_t(int file, const void* bytes, size_t size)>;

/// An append-only file of lines with one writer. One thread at a time.
class JournalFile {
 public:
  /// Opens or creates `path`, locks it against other writers and ends a line that a crash
  /// truncated. FailedPrecondition if another process is writing it or it is not a regular file;
  /// otherwise the status of errno, with the path.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& path,
                                                           WriteFunction write);
  /// Unlocks and closes.
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  /// Appends `line` and a newline, entirely or not at all: the remains of a failed write are
  /// removed.
  absl::Status Append(std::string_view line);
  /// Waits until all appended lines are on the disk.
  absl::Status Sync();
  /// Makes this file the newest of the older parts of the journal in `run_dir`, removes parts
  /// beyond `older_parts`, and opens a new journal.jsonl. On failure this file stays the current
  /// part.
  absl::StatusOr<std::unique_ptr<JournalFile>> BeginPart(const std::string& run_dir,
                                                         int older_parts, WriteFunction write);
  /// Bytes after the last Append.
  int64_t size() const { return size_; }

 private:
  JournalFile(int file, std::string path, WriteFunction write);
  absl::Status WriteAll(std::string_view bytes);
  absl::Status Error(int error, std::string_view what) const;

  const int file_;
  int64_t size_ = 0;
  const std::string path_;
  const WriteFunction write_;
  bool line_is_open_ = false;  // a crash truncated the last line, and it could not be ended
  // End of the valid part, if the remains of a failed write could not be removed.
  std::optional<off_t> good_end_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_FILE_H_
