#include "staging/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "ATen/ops/from_blob.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLargestPage = 64 << 10;  // of the kernels that LibTorch runs on

constexpr int64_t Aligned(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// The tensors begin on a page of their own, whatever its size, so that they can be mapped
// differently.
constexpr int64_t kFirstTensor = Aligned(sizeof(Page), kLargestPage);

absl::Status MemoryError(const char* call, int64_t bytes) {
  return absl::ResourceExhaustedError(
      StrCat("no memory to share the weights with the monitor's process (", bytes,
             " bytes): ", Message(absl::ErrnoToStatus(errno, call))));
}

}  // namespace

int64_t Reserve(int64_t bytes, int64_t& end) {
  // An empty tensor has an offset of its own, too.
  return std::exchange(end, end + Aligned(std::max<int64_t>(bytes, 1), kAlignment));
}

std::pair<std::vector<SharedTensor>, int64_t> LayoutOf(const TensorTable& live,
                                                       const std::vector<NamedTensor>& listed) {
  std::vector<int64_t> offsets;
  int64_t end = kFirstTensor;
  for (const TensorEntry& entry : live.entries) {
    const auto item = static_cast<int64_t>(c10::elementSize(CopiedType(live, entry)));
    offsets.push_back(Reserve(entry.tensor.numel() * item, end));
  }
  std::vector<SharedTensor> layout;
  for (size_t i = 0; i < live.names.size(); ++i) {
    const auto which = static_cast<size_t>(live.index[i]);
    const TensorEntry& entry = live.entries[which];
    layout.push_back({live.names[i], entry.tensor.sizes().vec(), CopiedType(live, entry),
                      entry.is_parameter, offsets[which]});
  }
  size_t next = 0;
  for (const NamedTensor& named : listed) {
    if (!named.tensor.defined()) continue;
    layout[next].global_shape = named.global_shape;
    layout[next].part_offset = named.offset;
    ++next;
  }
  return {std::move(layout), end};
}

absl::StatusOr<SharedMemory> SharedMemory::Make(int64_t bytes, std::string_view manifest,
                                                int64_t every, int stretch) {
  const int64_t manifest_offset = bytes;
  bytes += static_cast<int64_t>(manifest.size());
  const int file = memfd_create("ptqwatch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return MemoryError("memfd_create", bytes);
  SharedMemory made(file, MAP_FAILED, static_cast<size_t>(bytes));
  // Reserves the pages here, because a page that cannot be had later would be a SIGBUS.
  if (fallocate(file, 0, 0, bytes) != 0) return MemoryError("fallocate", bytes);
  if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return MemoryError("F_ADD_SEALS", bytes);
  }
  made.memory_ = mmap(nullptr, made.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (made.memory_ == MAP_FAILED) return MemoryError("mmap", bytes);
  madvise(made.memory_, made.bytes_, MADV_DONTFORK);
  Page* const page = new (made.memory_) Page(every, stretch);
  page->manifest_offset = manifest_offset;
  page->manifest_bytes = static_cast<int64_t>(manifest.size());
  std::copy(manifest.begin(), manifest.end(), static_cast<char*>(made.At(manifest_offset)));
  return made;
}

absl::StatusOr<SharedMemory> SharedMemory::MakeFor(int64_t content_bytes,
                                                   std::string_view manifest) {
  return Make(kFirstTensor + content_bytes, manifest, /*every=*/0, /*stretch=*/0);
}

absl::Span<char> SharedMemory::content() const {
  return {static_cast<char*>(At(kFirstTensor)),
          static_cast<size_t>(page().manifest_offset - kFirstTensor)};
}

absl::StatusOr<SharedMemory> SharedMemory::Map(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0 || info.st_size < kFirstTensor) {
    close(file);
    return absl::FailedPreconditionError(
        StrCat("descriptor ", file, " is not the memory of a trainer"));
  }
  const int64_t bytes = info.st_size;
  SharedMemory mapped(file, MAP_FAILED, static_cast<size_t>(bytes));
  mapped.memory_ = mmap(nullptr, mapped.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped.memory_ == MAP_FAILED) return MemoryError("mmap", bytes);
  const Page& page = mapped.page();
  if (page.version != Page::kVersion || page.manifest_offset < kFirstTensor ||
      page.manifest_offset + page.manifest_bytes > bytes) {
    return absl::FailedPreconditionError("the trainer runs another version of ptqwatch");
  }
  if (mprotect(static_cast<char*>(mapped.memory_) + kFirstTensor,
               mapped.bytes_ - static_cast<size_t>(kFirstTensor), PROT_READ) != 0) {
    return MemoryError("mprotect", bytes);
  }
  return mapped;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      memory_(std::exchange(other.memory_, MAP_FAILED)),
      bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  // A child of fork() may have other memory there.
  if (memory_ != MAP_FAILED && process_.here()) munmap(memory_, bytes_);
  if (file_ >= 0) close(file_);
}

std::vector<NamedTensor> SharedMemory::Tensors(const std::vector<SharedTensor>& layout) const {
  std::vector<NamedTensor> tensors;
  for (const SharedTensor& tensor : layout) {
    at::Tensor shared;
    if (tensor.offset != 0) {
      shared =
          at::from_blob(At(tensor.offset), tensor.sizes, at::TensorOptions().dtype(tensor.dtype));
    }
    tensors.push_back({tensor.name, std::move(shared), tensor.is_parameter});
  }
  return tensors;
}

}  // namespace ptqwatch::internal
