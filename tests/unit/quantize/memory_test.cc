// What quantizing a layer holds beyond its inputs, counted where all allocators end: malloc and its
// relatives, which this program replaces. A program of its own for that reason.

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PTQWATCH_COUNTS_ALLOCATIONS 0  // sanitizers replace malloc themselves
#else
#define PTQWATCH_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};

#if PTQWATCH_COUNTS_ALLOCATIONS
void* Counted(void* memory) {
  if (memory == nullptr) return memory;
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t before = peak.load();
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Forget(void* memory) {
  if (memory != nullptr) held -= static_cast<int64_t>(malloc_usable_size(memory));
}
#endif

}  // namespace

#if PTQWATCH_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t size) { return Counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return Counted(__libc_calloc(count, size)); }
void* realloc(void* memory, size_t size) {
  Forget(memory);
  return Counted(__libc_realloc(memory, size));
}
void* memalign(size_t alignment, size_t size) { return Counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) {
  return Counted(__libc_memalign(alignment, size));
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = Counted(__libc_memalign(alignment, size));
  return *memory == nullptr ? 12 : 0;  // ENOMEM
}
void free(void* memory) {
  Forget(memory);
  __libc_free(memory);
}
}
#endif

namespace ptqwatch {
namespace {

// The largest number of bytes held at once during `work`, beyond those held before.
template <class Work>
int64_t PeakDuring(const Work& work) {
  const int64_t before = held.load();
  peak.store(before);
  work();
  return peak.load() - before;
}

struct Shape {
  int64_t rows, cols;
};

TEST(Memory, CounterSeesEveryAllocator) {
  if (!PTQWATCH_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns malloc";
  constexpr size_t kBytes = 1 << 20;
  const auto seen = [](const auto& allocate) { return PeakDuring(allocate) >= (1 << 20); };
  EXPECT_TRUE(seen([] { std::vector<char>(kBytes).back() = 1; }));
  EXPECT_TRUE(seen([] { std::free(std::aligned_alloc(64, kBytes)); }));
  EXPECT_TRUE(seen([] { std::free(std::calloc(kBytes, 1)); }));
  EXPECT_FALSE(seen([] { std::free(std::malloc(100)); }));
}

// H in float32, its float64 factor, and two buffers of the weight's size; the result is in that.
TEST(Memory, OfGptqStaysBelowItsBound) {
  if (!PTQWATCH_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns malloc";
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

}  // namespace
}  // namespace ptqwatch
