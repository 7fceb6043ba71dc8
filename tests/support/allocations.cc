#include "support/allocations.h"

#include <malloc.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PTQWATCH_COUNTS_ALLOCATIONS 0  // sanitizers replace malloc themselves
#else
#define PTQWATCH_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> seen{0};
std::atomic<int64_t> failing{0};
std::atomic<size_t> smallest{0};
std::atomic<long> spared{0};  // thread to spare; 0 spares all

#if PTQWATCH_COUNTS_ALLOCATIONS
bool Fails(size_t bytes) {
  const long thread = spared.load(std::memory_order_relaxed);
  if (thread == 0 || bytes < smallest.load(std::memory_order_relaxed) ||
      syscall(SYS_gettid) == thread)
    return false;
  return ++seen == failing.load(std::memory_order_relaxed);
}

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

void* OutOfMemory() {
  errno = ENOMEM;
  return nullptr;
}
#endif

}  // namespace

#if PTQWATCH_COUNTS_ALLOCATIONS
#pragma GCC visibility push(default)  // the shared libraries must find them
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t size) { return Fails(size) ? OutOfMemory() : Counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) {
  return Fails(count * size) ? OutOfMemory() : Counted(__libc_calloc(count, size));
}
void* realloc(void* memory, size_t size) {
  if (Fails(size)) return OutOfMemory();
  Forget(memory);
  return Counted(__libc_realloc(memory, size));
}
void* memalign(size_t alignment, size_t size) {
  return Fails(size) ? OutOfMemory() : Counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  Forget(memory);
  __libc_free(memory);
}
}
#pragma GCC visibility pop
#endif

namespace ptqwatch::testing {

bool CountsAllocations() { return PTQWATCH_COUNTS_ALLOCATIONS != 0; }
int64_t HeldBytes() { return held.load(); }
int64_t PeakBytes() { return peak.load(); }
void ResetPeak() { peak.store(held.load()); }

void FailAllocation(int64_t nth, size_t min_bytes) {
  seen = 0;
  smallest = min_bytes;
  failing = nth;
  spared = syscall(SYS_gettid);
}
int64_t AllocationsOfOthers() { return seen.load(); }

}  // namespace ptqwatch::testing
