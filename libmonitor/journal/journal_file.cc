#include "journal/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/journal_files.h"

namespace ptqwatch::internal {

JournalFile::JournalFile(int file, std::string path, WriteFunction write)
    : file_(file), path_(std::move(path)), write_(std::move(write)) {}

JournalFile::~JournalFile() {
  // A forked child may still hold the file open, and thus the lock.
  flock(file_, LOCK_UN);
  close(file_);
}

absl::Status JournalFile::Error(int error, std::string_view what) const {
  return absl::ErrnoToStatus(error, StrCat("cannot ", what, " journal '", path_, "'"));
}

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& path,
                                                               WriteFunction write) {
  const int file = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return absl::ErrnoToStatus(errno, StrCat("cannot open journal '", path, "'"));
  }
  std::unique_ptr<JournalFile> journal(new JournalFile(file, path, std::move(write)));

  struct stat info {};
  if (fstat(file, &info) != 0) return journal->Error(errno, "examine");
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(StrCat("journal '", path, "' is not a regular file"));
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          StrCat("journal '", path,
                 "' is being written by another monitor: one run directory "
                 "serves one run at a time"));
    }
    // Some cluster file systems have no locks. A journal without a lock is better than none.
    Log(Severity::kWarning,
        StrCat(journal->Error(errno, "lock"), "; two runs could mix their lines in it"));
  }

  // Read the size again, because another writer may have appended before the lock was taken.
  if (fstat(file, &info) != 0) return journal->Error(errno, "examine");
  if (info.st_size > 0) {
    char last = '\n';
    if (pread(file, &last, 1, info.st_size - 1) != 1) return journal->Error(errno, "read");
    // On a full disk, the next Append ends the line.
    journal->line_is_open_ = last != '\n' && !journal->WriteAll("\n").ok();
  }
  return journal;
}

absl::Status JournalFile::WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write_(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error(written < 0 ? errno : EIO, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status JournalFile::Append(std::string_view line) {
  std::string bytes;
  if (line_is_open_) bytes.push_back('\n');
  if (good_end_) {
    if (ftruncate(file_, *good_end_) == 0) {
      good_end_.reset();
    } else {
      // The remains of the failed write become a line of their own, which readers skip.
      bytes.push_back('\n');
    }
  }
  struct stat info {};
  if (fstat(file_, &info) != 0) return Error(errno, "examine");
  bytes.append(line);
  bytes.push_back('\n');

  absl::Status status = WriteAll(bytes);
  if (status.ok()) {
    line_is_open_ = false;
    good_end_.reset();
    size_ = info.st_size + static_cast<int64_t>(bytes.size());
  } else if (!good_end_ && ftruncate(file_, info.st_size) != 0) {
    good_end_ = info.st_size;
  }
  return status;
}

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::BeginPart(const std::string& run_dir,
                                                                    int older_parts,
                                                                    WriteFunction write) {
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<std::string> parts, JournalPaths(run_dir));
  parts.pop_back();  // the current part
  const int64_t newest =
      parts.empty() ? 0 : OlderPartNumber(parts.back().substr(run_dir.size() + 1));
  const std::string older = StrCat(run_dir, "/", OlderPartName(newest + 1));
  // Not rename, which would replace an existing part with this name.
  if (link(path_.c_str(), older.c_str()) != 0) return Error(errno, "begin a part of");
  if (unlink(path_.c_str()) != 0) {
    const absl::Status failed = Error(errno, "begin a part of");
    unlink(older.c_str());
    return failed;
  }
  absl::StatusOr<std::unique_ptr<JournalFile>> next = Open(path_, std::move(write));
  if (!next.ok()) {
    rename(older.c_str(), path_.c_str());
    return next;
  }
  for (size_t i = 0; i + static_cast<size_t>(older_parts) <= parts.size(); ++i) {
    unlink(parts[i].c_str());
  }
  return next;
}

absl::Status JournalFile::Sync() {
  while (fdatasync(file_) != 0) {
    if (errno != EINTR) return Error(errno, "sync");
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
