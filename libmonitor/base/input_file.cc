#include "base/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

absl::Status Error(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, StrCat("cannot ", what, " '", path, "'"));
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) return Error("open", path);
  InputFile file(descriptor, path);
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return Error("examine", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(StrCat("'", path, "' is not a regular file"));
  }
  file.inode_ = info.st_ino;
  struct statx more {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 &&
      (more.stx_mask & STATX_BTIME) != 0) {
    file.born_ = int64_t{more.stx_btime.tv_sec} * 1'000'000'000 + more.stx_btime.tv_nsec;
  }
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      inode_(other.inode_),
      born_(other.born_),
      path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(inode_, other.inode_);
  std::swap(born_, other.born_);
  std::swap(path_, other.path_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<std::string> InputFile::ReadAt(int64_t offset, size_t bytes) const {
  std::string content(bytes, '\0');
  size_t filled = 0;
  while (filled < bytes) {
    const ssize_t got = pread(descriptor_, content.data() + filled, bytes - filled,
                              static_cast<off_t>(offset) + static_cast<off_t>(filled));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error("read", path_);
    }
    filled += static_cast<size_t>(got);
  }
  content.resize(filled);
  return content;
}

bool InputFile::HasName() const {
  struct stat info {};
  return fstat(descriptor_, &info) == 0 && info.st_nlink > 0;
}

absl::StatusOr<int64_t> InputFile::Size() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) return Error("examine", path_);
  return static_cast<int64_t>(info.st_size);
}

}  // namespace ptqwatch::internal
