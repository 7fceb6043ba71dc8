#ifndef PTQWATCH_CUDA_ARENA_H_
#define PTQWATCH_CUDA_ARENA_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// One block of a device's memory, allocated from the bottom and released from the top. Never
/// accesses the memory itself. Not thread-safe.
///
/// Released memory may be allocated again at once, because all work on it is ordered by one stream.
class Arena {
 public:
  /// Every piece begins at a multiple of this, if `memory` does.
  static constexpr int64_t kAlignment = 256;
  /// The bytes that a piece of this size occupies.
  static constexpr int64_t Padded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// `memory` may be null: such an arena only measures.
  Arena(void* memory, int64_t bytes) : memory_(reinterpret_cast<uintptr_t>(memory)), size_(bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t size() const { return size_; }
  int64_t used() const { return used_; }
  int64_t remaining() const { return size_ - used_; }
  /// The maximum of used() so far.
  int64_t peak() const { return peak_; }

  /// Allocates a piece with undefined contents. ResourceExhausted, naming `what`, if it is too
  /// large.
  absl::StatusOr<void*> Take(int64_t bytes, std::string_view what);
  template <typename T>
  absl::StatusOr<T*> TakeArray(int64_t count, std::string_view what) {
    absl::StatusOr<void*> memory = Take(count * static_cast<int64_t>(sizeof(T)), what);
    if (!memory.ok()) return memory.status();
    return static_cast<T*>(*memory);
  }
  /// Releases everything allocated since `used` bytes were in use.
  void ReturnTo(int64_t used) { used_ = used; }

 private:
  uintptr_t memory_;
  int64_t size_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

/// Its destructor releases everything allocated during its lifetime. Scopes must nest.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), begin_(arena.used()) {}
  ~ArenaScope() { arena_.ReturnTo(begin_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t begin_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_ARENA_H_
