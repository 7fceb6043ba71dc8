#ifndef PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_
#define PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace ptqwatch::testing {

// Counts all memory of a program and makes allocations fail, at the level of malloc and its
// relatives. A program opts in by listing allocations.cc among its sources.

/// Returns false if a sanitizer owns malloc: then nothing is counted and nothing fails.
bool CountsAllocations();

/// Bytes that the program holds, and their maximum since ResetPeak.
int64_t HeldBytes();
int64_t PeakBytes();
void ResetPeak();

/// The maximum number of bytes held during `work`, beyond those held before.
template <class Work>
int64_t PeakDuring(const Work& work) {
  const int64_t before = HeldBytes();
  ResetPeak();
  work();
  return PeakBytes() - before;
}

/// From now on, counts allocations of at least `min_bytes` by threads other than the calling one,
/// and makes the `nth` fail (from 1; 0 means none).
void FailAllocation(int64_t nth, size_t min_bytes);
/// The number of those allocations since FailAllocation.
int64_t AllocationsOfOthers();

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_ALLOCATIONS_H_
