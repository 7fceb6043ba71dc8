#ifndef PTQWATCH_SNAPSHOT_MEMORY_METER_H_
#define PTQWATCH_SNAPSHOT_MEMORY_METER_H_

#include <cstdint>
#include <memory>

#include "c10/util/ThreadLocalDebugInfo.h"

namespace ptqwatch::internal {

/// Counts the memory that LibTorch's allocators hand out on this thread during the meter's
/// lifetime: tensors, and operators' workspaces from these allocators. Memory that a math library
/// allocates itself is not counted. Meters nest; only the innermost one counts. Not thread-safe.
class MemoryMeter {
 public:
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes handed out and not yet freed.
  int64_t bytes() const;
  /// The maximum of bytes() so far.
  int64_t peak() const;

 private:
  class Counter;
  const std::shared_ptr<Counter> counter_;
  const c10::DebugInfoGuard guard_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MEMORY_METER_H_
