#ifndef PTQWATCH_BASE_ATOMIC_FILE_H_
#define PTQWATCH_BASE_ATOMIC_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Writes a file that appears under its name either complete or not at all. Not thread-safe.
class PTQWATCH_EXPORT AtomicFile {
 public:
  /// Creates a temporary file beside `path`, with the permissions `mode` less the umask. Errors are
  /// the system's and name `path`.
  static absl::StatusOr<AtomicFile> Create(const std::string& path, mode_t mode = 0666);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  /// Removes the file unless it was committed.
  ~AtomicFile();

  absl::Status Append(absl::Span<const char> bytes);
  /// Waits until the content is on the disk. A full disk is reported here at the latest.
  absl::Status Sync();
  /// Syncs and renames the file to `path`, replacing any file there.
  absl::Status Commit();
  /// Like Commit, but does not wait for the disk: for files that are rewritten often. After a crash
  /// of the machine the file may be empty.
  absl::Status CommitUnsynced();

 private:
  AtomicFile() = default;
  void Discard();

  std::string path_;
  std::string temporary_;  // empty without one
  int descriptor_ = -1;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_ATOMIC_FILE_H_
