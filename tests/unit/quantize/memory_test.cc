// Measures the memory that quantizing a layer takes beyond its inputs. A program of its own,
// because it replaces malloc.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "ptqwatch/quantizer.h"
#include "support/allocations.h"
#include "unit/quantize/reference.h"

namespace ptqwatch {
namespace memory_test {

using testing::CountsAllocations;
using testing::PeakDuring;

struct Shape {
  int64_t rows, cols;
};

TEST(Memory, CounterSeesEveryAllocator) {
  if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  constexpr size_t kBytes = 1 << 20;
  const auto seen = [](const auto& allocate) {
    return PeakDuring([&] {
             void* volatile memory = allocate();  // or the pair is optimised away
             std::free(memory);
           }) >= (1 << 20);
  };
  EXPECT_TRUE(seen([] { return std::malloc(kBytes); }));
  EXPECT_TRUE(seen([] { return std::aligned_alloc(64, kBytes); }));
  EXPECT_TRUE(seen([] { return std::calloc(kBytes, 1); }));
  EXPECT_FALSE(seen([] { return std::malloc(100); }));
}

// H in float32, its float64 factor, and two buffers of the weight's size; the result is in that.
TEST(Memory, OfGptqStaysBelowItsBound) {
  if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const Shape& shape : {Shape{1024, 1024}, Shape{2048, 512}, Shape{512, 1024}}) {
    const testing::Matrix weight = testing::RandomMatrix(shape.rows, shape.cols, 1);
    // A diagonal H costs what any other does.
    GramStatistics statistics;
    statistics.inputs = shape.cols;
    statistics.tokens = shape.cols;
    statistics.sum.resize(static_cast<size_t>(shape.cols * shape.cols));
    for (int64_t i = 0; i < shape.cols; ++i) {
      statistics.sum[static_cast<size_t>(i * shape.cols + i)] = static_cast<double>(1 + i % 7);
    }
    for (int threads : {1, 2}) {
      ExecutionContext context;
      context.threads = threads;
      const int64_t used = PeakDuring([&] {
        const absl::StatusOr<QuantizedWeight> result =
            Quantize(weight.view(), &statistics, QuantizerSpec{}, context);
        EXPECT_TRUE(result.ok() && result->status == LayerStatus::kOk);
      });
      const int64_t square = shape.cols * shape.cols;
      EXPECT_LE(used, 4 * square + 8 * square + 2 * 4 * shape.rows * shape.cols)
          << shape.rows << "x" << shape.cols << ", " << threads << " threads";
      EXPECT_GE(used, 4 * square);  // or the counter is blind
    }
  }
}

}  // namespace memory_test
}  // namespace ptqwatch
