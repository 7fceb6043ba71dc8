#ifndef PTQWATCH_BASE_INPUT_FILE_H_
#define PTQWATCH_BASE_INPUT_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// A regular file that another process may be writing. One thread at a time.
class InputFile {
 public:
  /// Does not follow a link, which may have been planted, and does not wait for the writer of a
  /// FIFO. FailedPrecondition if `path` is not a regular file, otherwise the status of errno
  /// (NotFound if it does not exist); all messages name the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  /// Up to `bytes` from `offset`; fewer only at the end of the file.
  absl::StatusOr<std::string> ReadAt(int64_t offset, size_t bytes) const;
  absl::StatusOr<int64_t> Size() const;
  /// Whether any name still refers to the file.
  bool HasName() const;
  /// Distinguishes the file from a later one with the same name, while this object lives.
  ino_t inode() const { return inode_; }
  /// When the file was made, in nanoseconds; 0 if the file system does not know. With inode() it
  /// distinguishes the file for good.
  int64_t born() const { return born_; }

 private:
  InputFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_;
  ino_t inode_ = 0;
  int64_t born_ = 0;
  std::string path_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_INPUT_FILE_H_
