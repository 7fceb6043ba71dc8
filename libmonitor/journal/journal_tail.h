#ifndef PTQWATCH_JOURNAL_JOURNAL_TAIL_H_
#define PTQWATCH_JOURNAL_JOURNAL_TAIL_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/input_file.h"
#include "journal/line_reader.h"

namespace ptqwatch::internal {

/// Reads the journal of a run directory from its first line, and then appended lines, across its
/// parts. One thread at a time.
class JournalTail {
 public:
  JournalTail(std::string run_dir, LineHandlers handlers)
      : run_dir_(std::move(run_dir)), anew_(handlers.anew), reader_(std::move(handlers)) {}

  /// Reads complete lines: about a megabyte, or a single longer one. True if more can be read at
  /// once; false at the end of the journal or if there is none yet. A failure has the status of
  /// errno and names the path; the next call continues after the lines read so far.
  absl::StatusOr<bool> Read();

  /// Reads one line, for a reader of many journals: no file stays open. True if a line was read.
  absl::StatusOr<bool> ReadLine();

 private:
  absl::StatusOr<bool> ReadSome(bool one_line);
  absl::StatusOr<bool> OpenNext();
  absl::StatusOr<bool> OpenAgain();
  absl::Status ReadRest();

  const std::string run_dir_;
  const std::function<void()> anew_;
  LineReader reader_;
  std::optional<InputFile> file_;
  // The part that ReadLine left: InputFile::inode and born.
  std::optional<std::pair<ino_t, int64_t>> left_;
  int64_t offset_ = 0;  // bytes before it have been read
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_JOURNAL_TAIL_H_
