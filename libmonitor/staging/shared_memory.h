#ifndef PTQWATCH_STAGING_SHARED_MEMORY_H_
#define PTQWATCH_STAGING_SHARED_MEMORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/process_end.h"
#include "handover/page.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// Where a tensor of the live model lies in the shared memory.
struct SharedTensor {
  std::string name;
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_parameter = true;
  int64_t offset = 0;  ///< from the start of the memory; equal for tied tensors
  /// As in NamedTensor, of a part.
  std::vector<int64_t> global_shape = {};
  std::vector<int64_t> part_offset = {};
};

/// Reserves `bytes` behind `end`, which becomes their end, and returns their offset.
int64_t Reserve(int64_t bytes, int64_t& end);

/// The layout of a model's tensors, one for each of the table, and the bytes that it ends at.
/// `listed` are the tensors that the table was made of.
std::pair<std::vector<SharedTensor>, int64_t> LayoutOf(const TensorTable& live,
                                                       const std::vector<NamedTensor>& listed);

/// A Page and the tensors behind it, in a file without a name (memfd), which vanishes with
/// the last process that has it. Children of fork() do not inherit the mapping.
class SharedMemory {
 public:
  /// Trainer: makes and maps a file of `bytes` and the manifest behind them. Its size is final.
  /// ResourceExhausted if memory is short.
  static absl::StatusOr<SharedMemory> Make(int64_t bytes, std::string_view manifest, int64_t every,
                                           int stretch);
  /// The same for a copy of the memory of another host's rank, with `content_bytes`.
  static absl::StatusOr<SharedMemory> MakeFor(int64_t content_bytes, std::string_view manifest);
  /// Worker: maps the file, the tensors only for reading. Takes the descriptor.
  /// FailedPrecondition if it does not begin with a page of this version.
  static absl::StatusOr<SharedMemory> Map(int file);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  int file() const { return file_; }
  Page& page() const { return *static_cast<Page*>(memory_); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  std::string_view manifest() const {
    return {static_cast<const char*>(At(page().manifest_offset)),
            static_cast<size_t>(page().manifest_bytes)};
  }
  /// All between the page and the manifest: tensors and the optimizer's state.
  absl::Span<char> content() const;
  void* At(int64_t offset) const { return static_cast<char*>(memory_) + offset; }
  /// The tensors, which must not be used after this object; undefined for offset 0.
  std::vector<NamedTensor> Tensors(const std::vector<SharedTensor>& layout) const;

 private:
  SharedMemory(int file, void* memory, size_t bytes)
      : file_(file), memory_(memory), bytes_(bytes) {}
  const ProcessMark process_;
  int file_;
  void* memory_;
  size_t bytes_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STAGING_SHARED_MEMORY_H_
