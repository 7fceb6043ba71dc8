#include "feed/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace ptqwatch::internal {
namespace {

int OpenUnnamed() {
  const char* folder = getenv("TMPDIR");
  if (folder == nullptr || *folder == '\0') folder = "/tmp";
  const int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file >= 0) return file;
  // Not every file system supports O_TMPFILE.
  std::string name = std::string(folder) + "/ptqwatch-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

// Keeps 1 GiB free, because the trainer may write to the same file system.
bool HasRoom(int file) {
  constexpr uint64_t kReserveBytes = uint64_t{1} << 30;
  struct statvfs disk {};
  return fstatvfs(file, &disk) != 0 || uint64_t{disk.f_bavail} * disk.f_frsize > kReserveBytes;
}

bool WriteAt(int file, int64_t offset, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = pwrite(file, bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

SpillFile::~SpillFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int64_t SpillFile::Append(const std::vector<SharedBytes>& pieces) {
  if (descriptor_ < 0) descriptor_ = OpenUnnamed();
  if (descriptor_ < 0 || !HasRoom(descriptor_)) return -1;
  const int64_t begin = end_;
  int64_t end = end_;
  for (const SharedBytes& piece : pieces) {
    if (!WriteAt(descriptor_, end, *piece)) return -1;
    end += static_cast<int64_t>(piece->size());
  }
  end_ = end;
  return begin;
}

SharedBytes SpillFile::Read(int64_t offset, size_t bytes) const {
  std::string content(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(descriptor_, content.data() + done, bytes - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return nullptr;
    done += static_cast<size_t>(got);
  }
  return Share(std::move(content));
}

void SpillFile::Forget(int64_t offset, int64_t bytes) {
  // Only a hint: if the file system cannot punch holes, the file keeps its size.
  [[maybe_unused]] const int status =
      fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes));
}

}  // namespace ptqwatch::internal
