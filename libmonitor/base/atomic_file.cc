#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

absl::Status SystemError(int error, std::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(error, StrCat(what, " ", Quoted(path)));
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Opens a new file beside `target`. mkstemp would make it unreadable to other users.
int CreateBeside(const std::filesystem::path& target, mode_t mode, std::string* name) {
  static std::atomic<uint32_t> counter{0};
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *name = StrCat(FolderOf(target.string()), "/.", target.filename().string(), ".", getpid(), "-",
                   counter.fetch_add(1), ".tmp");
    const int file = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

// A rename is durable only once its folder is synced. Some file systems cannot sync a folder.
absl::Status SyncFolder(const std::string& path) {
  const int folder = open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError(errno, "cannot open the folder of", path);
  const absl::Cleanup close_folder = [folder] { close(folder); };
  if (fsync(folder) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return SystemError(errno, "cannot sync the folder of", path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path, mode_t mode) {
  const std::filesystem::path target(path);
  if (!target.has_filename()) {
    return absl::InvalidArgumentError(StrCat("no file name: ", Quoted(path)));
  }
  std::string name;
  const int descriptor = CreateBeside(target, mode, &name);
  if (descriptor < 0) return SystemError(errno, "cannot write", path);
  AtomicFile file;
  file.path_ = path;
  file.temporary_ = std::move(name);
  file.descriptor_ = descriptor;
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_ = std::exchange(other.temporary_, "");
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  descriptor_ = -1;
  temporary_.clear();
}

absl::Status AtomicFile::Append(absl::Span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "cannot write", path_);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  if (fsync(descriptor_) != 0) return SystemError(errno, "cannot write", path_);
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  PTQWATCH_RETURN_IF_ERROR(Sync());
  PTQWATCH_RETURN_IF_ERROR(CommitUnsynced());
  return SyncFolder(path_);
}

absl::Status AtomicFile::CommitUnsynced() {
  if (close(std::exchange(descriptor_, -1)) != 0) return SystemError(errno, "cannot write", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return SystemError(errno, "cannot write", path_);
  }
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
