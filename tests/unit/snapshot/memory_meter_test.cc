#include "snapshot/memory_meter.h"

#include <gtest/gtest.h>

#include <thread>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "torch/csrc/profiler/orchestration/observer.h"

namespace ptqwatch::internal {
namespace memory_meter_test {

at::Tensor Megabytes(int64_t count) { return at::empty({count << 20}, at::kByte); }

TEST(MemoryMeter, CountsTensorsAndRemembersThePeak) {
  const MemoryMeter meter;
  const at::Tensor kept = Megabytes(1);
  { const at::Tensor passing = Megabytes(3); }
  EXPECT_EQ(meter.bytes(), 1 << 20);
  EXPECT_EQ(meter.peak(), 4 << 20);
}

TEST(MemoryMeter, DoesNotMissWhatWasThereBefore) {
  at::Tensor older = Megabytes(2);
  const MemoryMeter meter;
  older.reset();
  EXPECT_EQ(meter.bytes(), 0);
  EXPECT_EQ(meter.peak(), 0);
}

TEST(MemoryMeter, LeavesOtherThreadsAlone) {
  const MemoryMeter meter;
  std::thread([] { Megabytes(1); }).join();
  EXPECT_EQ(meter.peak(), 0);
}

TEST(MemoryMeter, TheInnermostOneCounts) {
  const MemoryMeter outer;
  {
    const MemoryMeter inner;
    Megabytes(1);
    EXPECT_EQ(inner.peak(), 1 << 20);
  }
  EXPECT_EQ(outer.peak(), 0);
  Megabytes(2);
  EXPECT_EQ(outer.peak(), 2 << 20);
}

// Python's autograd functions read the configuration of a profiler that is on.
TEST(MemoryMeter, IsNotAProfiler) {
  const MemoryMeter meter;
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
  EXPECT_TRUE(torch::profiler::impl::getProfilerConfig().disabled());
}

}  // namespace memory_meter_test
}  // namespace ptqwatch::internal
