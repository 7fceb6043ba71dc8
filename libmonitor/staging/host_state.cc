#include "staging/host_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "base/atomic_file.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"

namespace ptqwatch::internal {
namespace {

struct ImageHead {
  uint64_t version = Page::kVersion;
  HostKey memory{};
  int64_t content_bytes = 0;
  int64_t manifest_bytes = 0;
  std::array<char, sizeof(SnapshotHeader)> header{};
};

absl::Span<const char> BytesOf(const ImageHead& head) {
  return {reinterpret_cast<const char*>(&head), sizeof(head)};
}

// An image that is open for reading, with its head and its manifest.
struct OpenImage {
  int file = -1;
  ImageHead head;
  std::string manifest = {};
};

// How much of an image is moved before the next look at the token.
constexpr size_t kPiece = size_t{8} << 20;

absl::Status ReadFully(int file, int64_t offset, absl::Span<char> to, const std::string& path,
                       const CancelToken& cancel = {}) {
  while (!to.empty()) {
    if (cancel.cancelled()) return absl::CancelledError(path);
    const ssize_t got = pread(file, to.data(), std::min(to.size(), kPiece), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path);
    if (got == 0) return absl::DataLossError(StrCat(path, " is cut off"));
    to.remove_prefix(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::Status ReadHead(const std::string& path, const HostKey& memory, OpenImage& image) {
  ImageHead& head = image.head;
  PTQWATCH_RETURN_IF_ERROR(
      ReadFully(image.file, 0, absl::MakeSpan(reinterpret_cast<char*>(&head), sizeof(head)), path));
  struct stat info {};
  if (head.version != Page::kVersion || head.memory != memory || fstat(image.file, &info) != 0 ||
      static_cast<int64_t>(sizeof(head)) + head.manifest_bytes + head.content_bytes !=
          info.st_size) {
    return absl::DataLossError(StrCat(path, " is not the memory of that rank"));
  }
  image.manifest.resize(static_cast<size_t>(head.manifest_bytes));
  return ReadFully(image.file, sizeof(head), absl::MakeSpan(image.manifest), path);
}

absl::Status ReadContent(const OpenImage& image, const SharedMemory& to, const std::string& path,
                         const CancelToken& cancel) {
  const absl::Span<char> content = to.content();
  if (image.head.content_bytes != static_cast<int64_t>(content.size()) ||
      image.manifest != to.manifest()) {
    return absl::DataLossError(StrCat(path, " has another layout than before"));
  }
  return ReadFully(image.file, static_cast<int64_t>(sizeof(image.head)) + image.head.manifest_bytes,
                   content, path, cancel);
}

}  // namespace

HostKey KeyOf(std::string_view text) {
  Digest digest;
  digest.Add(text);
  HostKey key;
  std::copy_n(digest.Hex().data(), key.size(), key.data());
  return key;
}

HostKey KeyOf(const SharedMemory& memory) {
  struct stat info {};
  fstat(memory.file(), &info);
  const absl::StatusOr<std::string> boot = ReadTextFile("/proc/sys/kernel/random/boot_id");
  return KeyOf(StrCat(boot.ok() ? *boot : "", ":", info.st_dev, ":", info.st_ino));
}

std::string FirstHostPath(const ShardPlace& place) { return place.directory + "/first-host"; }

void RemoveIfLast(const ShardPlace& place, const HostKey& session) noexcept {
  const std::string path = FirstHostPath(place);
  const auto first = ReadStateOf<FirstHost, RankOrder>(path);
  if (!first.ok() || first->first.session != session || first->first.ended == 0) return;
  std::error_code error;
  for (int64_t host = 1; host < place.hosts; ++host) {
    if (std::filesystem::exists(HostFolder(place, host, session), error)) return;
  }
  unlink(path.c_str());
  std::filesystem::remove(place.directory, error);  // fails unless it is empty
}

std::string HostFolder(const ShardPlace& place, int64_t host, const HostKey& session) {
  return StrFormat("%s/host-%04d-%s", place.directory, host,
                   std::string_view(session.data(), session.size()));
}

std::string HostStatePath(const std::string& folder) { return folder + "/state"; }

std::string ImagePath(const std::string& folder, int64_t rank, int64_t image) {
  return StrFormat("%s/rank-%04d-%d", folder, rank, image);
}

absl::Status WriteState(const std::string& path, std::string bytes) {
  const uint64_t version = Page::kVersion;
  bytes.append(reinterpret_cast<const char*>(&version), sizeof(version));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return absl::UnavailableError(StrCat(path, ": ", error.message()));
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PTQWATCH_RETURN_IF_ERROR(file.Append(bytes));
  return file.CommitUnsynced();
}

absl::StatusOr<std::string> ReadState(const std::string& path, size_t head_bytes,
                                      size_t row_bytes) {
  absl::StatusOr<std::string> read = ReadTextFile(path);
  if (absl::IsNotFound(read.status())) {
    // Opening the folder makes NFS forget that the name did not exist.
    std::error_code ignored;
    std::filesystem::directory_iterator(std::filesystem::path(path).parent_path(), ignored);
    read = ReadTextFile(path);
  }
  PTQWATCH_ASSIGN_OR_RETURN(std::string bytes, std::move(read));
  uint64_t version = 0;
  if (bytes.size() >= head_bytes + sizeof(version)) {
    const size_t end = bytes.size() - sizeof(version);
    std::copy_n(bytes.data() + end, sizeof(version), reinterpret_cast<char*>(&version));
    bytes.resize(end);
  }
  if (version == Page::kVersion && (bytes.size() - head_bytes) % row_bytes == 0) return bytes;
  return absl::DataLossError(StrCat(path, " is of another version of ptqwatch"));
}

absl::Status WriteImage(const std::string& path, const SharedMemory& memory,
                        const CancelToken& cancel) {
  const absl::Span<const char> content = memory.content();
  ImageHead head;
  head.memory = KeyOf(memory);
  head.content_bytes = static_cast<int64_t>(content.size());
  head.manifest_bytes = static_cast<int64_t>(memory.manifest().size());
  const auto* const header = reinterpret_cast<const char*>(&memory.page().slot.header);
  std::copy_n(header, head.header.size(), head.header.data());
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PTQWATCH_RETURN_IF_ERROR(file.Append(BytesOf(head)));
  PTQWATCH_RETURN_IF_ERROR(file.Append(memory.manifest()));
  for (size_t at = 0; at < content.size(); at += kPiece) {
    if (cancel.cancelled()) return absl::CancelledError(path);
    PTQWATCH_RETURN_IF_ERROR(file.Append(content.subspan(at, kPiece)));
  }
  return file.CommitUnsynced();
}

absl::StatusOr<SharedMemory> MemoryOfImage(const std::string& path, const HostKey& memory,
                                           const CancelToken& cancel) {
  OpenImage image{.file = open(path.c_str(), O_RDONLY | O_CLOEXEC), .head = {}};
  if (image.file < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup closed = [&] { close(image.file); };
  PTQWATCH_RETURN_IF_ERROR(ReadHead(path, memory, image));
  PTQWATCH_ASSIGN_OR_RETURN(SharedMemory made,
                            SharedMemory::MakeFor(image.head.content_bytes, image.manifest));
  PTQWATCH_RETURN_IF_ERROR(ReadContent(image, made, path, cancel));
  return made;
}

absl::StatusOr<SnapshotHeader> ReadImage(const std::string& path, const HostKey& memory,
                                         const SharedMemory& to, const CancelToken& cancel) {
  OpenImage image{.file = open(path.c_str(), O_RDONLY | O_CLOEXEC), .head = {}};
  if (image.file < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup closed = [&] { close(image.file); };
  PTQWATCH_RETURN_IF_ERROR(ReadHead(path, memory, image));
  PTQWATCH_RETURN_IF_ERROR(ReadContent(image, to, path, cancel));
  SnapshotHeader header;
  std::copy(image.head.header.begin(), image.head.header.end(), reinterpret_cast<char*>(&header));
  return header;
}

}  // namespace ptqwatch::internal
