#include "journal/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr char kLockFileName[] = "lock";

// The files of all locks. A child of fork() shares them with its parent, and would keep the
// directory locked if it outlived the parent.
class LockFiles {
 public:
  static void Add(int file) {
    [[maybe_unused]] static const int watched = pthread_atfork(nullptr, nullptr, CloseAll);
    for (std::atomic<int>& place : files()) {
      int free = kFree;
      if (place.compare_exchange_strong(free, file)) return;
    }
  }
  static void Remove(int file) {
    for (std::atomic<int>& place : files()) {
      int taken = file;
      if (place.compare_exchange_strong(taken, kFree)) return;
    }
  }

 private:
  static constexpr int kFree = 0;
  static std::array<std::atomic<int>, 256>& files() {
    static std::array<std::atomic<int>, 256> files{};
    return files;
  }
  static void CloseAll() {
    for (std::atomic<int>& place : files()) {
      if (const int file = place.exchange(kFree); file != kFree) close(file);
    }
  }
};

// An existing directory keeps its mode.
absl::Status MakeDirectory(const std::string& run_dir) {
  std::error_code error;
  const std::filesystem::path parent =
      std::filesystem::absolute(run_dir, error).lexically_normal().parent_path();
  if (!error) std::filesystem::create_directories(parent, error);
  const bool made = !error && (mkdir(run_dir.c_str(), S_IRWXU) == 0 || errno == EEXIST);
  struct stat info {};
  if (!made || stat(run_dir.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(error ? error.value() : errno,
                               StrCat("cannot create run_dir '", run_dir, "'"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::ErrnoToStatus(ENOTDIR, StrCat("cannot use run_dir '", run_dir, "'"));
  }
  if (info.st_uid != geteuid() && geteuid() != 0) {
    return absl::FailedPreconditionError(StrCat("run_dir '", run_dir, "' belongs to user ",
                                                info.st_uid, ", and this is user ", geteuid()));
  }
  return absl::OkStatus();
}

// Removes temporary files of AtomicFile left by a process that ended while it wrote.
void RemoveTemporaries(const std::string& run_dir) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(run_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".") && name.ends_with(".tmp")) {
      std::filesystem::remove(entry->path(), ignored);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Take(const std::string& path_of_run) {
  // With a trailing slash, the directory would be its own parent.
  const std::string run_dir = path_of_run.substr(0, path_of_run.find_last_not_of('/') + 1);
  if (absl::Status made = MakeDirectory(run_dir); !made.ok()) return made;
  const std::string path = StrCat(run_dir, "/", kLockFileName);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return absl::ErrnoToStatus(errno, StrCat("run_dir '", run_dir, "': cannot open its lock file"));
  }
  std::unique_ptr<RunLock> lock(new RunLock(file));
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          StrCat("run_dir '", run_dir,
                 "' is being used by another monitor: one run directory serves one run at a time"));
    }
    // Some cluster file systems have no locks. A run without a lock is better than none.
    Log(Severity::kWarning, StrCat(absl::ErrnoToStatus(errno, StrCat("cannot lock '", path, "'")),
                                   "; nothing keeps a second run out of the directory"));
  }
  RemoveTemporaries(run_dir);
  return lock;
}

bool RunLock::IsHeld(const std::string& run_dir) {
  struct stat info {};
  if (stat(StrCat(run_dir, "/", kLockFileName).c_str(), &info) != 0) return false;
  // "1: FLOCK  ADVISORY  WRITE 4711 08:01:123 0 EOF"; a file system in layers has other devices.
  const std::string inode = StrCat(":", info.st_ino);
  std::ifstream locks("/proc/locks");
  std::string number, kind, mode, access, process, file;
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    words >> number >> kind >> mode >> access >> process >> file;
    if (kind == "FLOCK" && file.ends_with(inode)) return true;
  }
  return false;
}

RunLock::RunLock(int file) : file_(file) { LockFiles::Add(file); }

RunLock::~RunLock() {
  if (!process_.here()) return;  // closed at the fork
  LockFiles::Remove(file_);
  // A child between fork() and exec() may still hold the file open, and thus the lock.
  flock(file_, LOCK_UN);
  close(file_);
}

}  // namespace ptqwatch::internal
