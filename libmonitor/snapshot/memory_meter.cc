#include "snapshot/memory_meter.h"

#include <algorithm>
#include <atomic>

#include "torch/csrc/profiler/orchestration/observer.h"

namespace ptqwatch::internal {

namespace profiler = torch::profiler::impl;

// LibTorch takes whatever has the place of PROFILER_STATE for a ProfilerStateBase: Python's
// autograd functions ask it whether a profiler is on. If a backward pass uses autograd's threads,
// they report here too.
class MemoryMeter::Counter final : public profiler::ProfilerStateBase {
 public:
  Counter() : ProfilerStateBase(profiler::ProfilerConfig(profiler::ProfilerState::Disabled)) {}
  void reportMemoryUsage(void* /*ptr*/, int64_t alloc_size, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device /*device*/) override {
    const int64_t now = bytes_.fetch_add(alloc_size, std::memory_order_relaxed) + alloc_size;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
  profiler::ActiveProfilerType profilerType() override {
    return profiler::ActiveProfilerType::NONE;
  }

  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> peak_{0};
};

MemoryMeter::MemoryMeter()
    : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

int64_t MemoryMeter::bytes() const { return counter_->bytes(); }
int64_t MemoryMeter::peak() const { return counter_->peak(); }

}  // namespace ptqwatch::internal
