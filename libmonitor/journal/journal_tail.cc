#include "journal/journal_tail.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/journal_files.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kTailChunkBytes = size_t{1} << 20;
constexpr size_t kLineChunkBytes = size_t{8} << 10;
// A longer line is damage, which LineReader detects.
constexpr size_t kLongestChunk = size_t{64} << 20;

}  // namespace

absl::StatusOr<bool> JournalTail::Read() { return ReadSome(/*one_line=*/false); }

absl::StatusOr<bool> JournalTail::ReadLine() {
  if (left_) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool more, OpenAgain());
    if (!more) return false;
  }
  const int64_t before = offset_;
  absl::StatusOr<bool> read = ReadSome(/*one_line=*/true);
  // At the end of a part the next one was opened.
  if (read.ok() && *read && offset_ == 0 && before > 0) read = ReadSome(/*one_line=*/true);
  if (file_) left_.emplace(file_->inode(), file_->born());
  file_.reset();
  return read;
}

// Opens the part that was left. False if it is the newest one and has no more bytes.
absl::StatusOr<bool> JournalTail::OpenAgain() {
  std::vector<std::string> paths = {StrCat(run_dir_, "/", kJournalFileName)};
  bool is_newest = true;
  for (size_t i = 0; i < paths.size(); ++i) {
    absl::StatusOr<InputFile> file = InputFile::Open(paths[i]);
    if (file.ok() && std::pair(file->inode(), file->born()) == *left_) {
      PTQWATCH_ASSIGN_OR_RETURN(const int64_t size, file->Size());
      if (is_newest && size == offset_) return false;
      file_ = *std::move(file);
      return true;
    }
    if (!file.ok() && !absl::IsNotFound(file.status())) return file.status();
    if (i == 0) {
      PTQWATCH_ASSIGN_OR_RETURN(std::vector<std::string> all, JournalPaths(run_dir_));
      paths.insert(paths.end(), all.begin(), all.end());
      is_newest = false;
    }
  }
  // The part was deleted: the directory has another journal, or later parts.
  left_.reset();
  offset_ = 0;
  return true;
}

absl::StatusOr<bool> JournalTail::ReadSome(bool one_line) {
  if (!file_) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool opened, OpenNext());
    if (!opened) return false;
  }
  const absl::StatusOr<int64_t> size = file_->Size();
  if (absl::IsAborted(size.status())) return OpenNext();  // ESTALE: another host removed the file
  PTQWATCH_RETURN_IF_ERROR(size.status());
  if (*size < offset_) offset_ = 0;  // the file was replaced
  // The bytes after the last newline are being written, or will be removed again.
  size_t chunk = one_line ? kLineChunkBytes : kTailChunkBytes;
  for (; chunk <= kLongestChunk; chunk *= 8) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::string bytes, file_->ReadAt(offset_, chunk));
    const bool at_end = bytes.size() < chunk;
    size_t whole = (one_line ? bytes.find('\n') : bytes.rfind('\n')) + 1;  // npos + 1 is 0
    if (whole == 0 && !at_end && chunk == kLongestChunk) whole = bytes.size();
    if (whole > 0) {
      reader_.Add(std::string_view(bytes).substr(0, whole));
      offset_ += static_cast<int64_t>(whole);
      return true;
    }
    if (at_end) break;
  }
  return OpenNext();
}

// Reads lines that were appended to a part after the last read and before the next part was begun.
absl::Status JournalTail::ReadRest() {
  if (!file_) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(const std::string bytes, file_->ReadAt(offset_, kLongestChunk));
  const size_t whole = bytes.rfind('\n') + 1;
  reader_.Add(std::string_view(bytes).substr(0, whole));
  offset_ += static_cast<int64_t>(whole);
  return absl::OkStatus();
}

// Opens the part after the current one, or the first one if none is open.
absl::StatusOr<bool> JournalTail::OpenNext() {
  bool is_next = !file_;
  std::vector<InputFile> files;
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> paths, JournalPaths(run_dir_));
  for (const std::string& path : paths) {
    absl::StatusOr<InputFile> file = InputFile::Open(path);
    if (absl::IsNotFound(file.status())) continue;
    PTQWATCH_RETURN_IF_ERROR(file.status());
    if (is_next) {
      PTQWATCH_RETURN_IF_ERROR(ReadRest());
      file_ = *std::move(file);
      offset_ = 0;
      return true;
    }
    is_next = file->inode() == file_->inode();
    files.push_back(*std::move(file));
  }
  // If the current part still has a name, it was renamed while the parts were listed.
  if (is_next || files.empty() || file_->HasName()) return false;
  // The current part was deleted: the directory has another journal, or later parts.
  if (files.size() == 1 && anew_) anew_();
  file_ = std::move(files.front());
  offset_ = 0;
  return true;
}

}  // namespace ptqwatch::internal
