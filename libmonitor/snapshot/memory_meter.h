#ifndef PTQWATCH_SNAPSHOT_MEMORY_METER_H_
#define PTQWATCH_SNAPSHOT_MEMORY_METER_H_

#include <cstdint>
#include <memory>

#include "c10/util/ThreadLocalDebugInfo.h"

namespace ptqwatch::internal {

/// Counts the memory that LibTorch's allocators hand out on this thread while it lives: tensors,
/// and the work space that operators get from there. What a math library allocates itself is not
/// seen. Meters nest; the innermost one counts. One thread.
class MemoryMeter {
 public:
  MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes held now of those that were handed out.
  int64_t bytes() const;
  /// The most that was.
  int64_t peak() const;

 private:
  class Counter;
  const std::shared_ptr<Counter> counter_;
  const c10::DebugInfoGuard guard_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MEMORY_METER_H_
