#ifndef PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_
#define PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace ptqwatch::testing {

// Counts all memory of a program, and lets allocations fail, where all allocators end: malloc and
// its relatives. A program has this by listing allocations.cc among its own sources.

/// False where a sanitizer owns malloc: nothing is counted and nothing fails.
bool CountsAllocations();

/// Bytes that the program holds, and the most it held since ResetPeak.
int64_t HeldBytes();
int64_t PeakBytes();
void ResetPeak();

/// The largest number of bytes held at once during `work`, beyond those held before.
template <class Work>
int64_t PeakDuring(const Work& work) {
  const int64_t before = HeldBytes();
  ResetPeak();
  work();
  return PeakBytes() - before;
}

/// From now on allocations of at least `min_bytes` by threads other than the calling one are
/// counted, and the `nth` fails (from 1; 0: none).
void FailAllocation(int64_t nth, size_t min_bytes);
/// Of those threads, since FailAllocation.
int64_t AllocationsOfOthers();

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_
