#ifndef PTQWATCH_QUANTIZE_KERNELS_ALIGNED_BUFFER_H_
#define PTQWATCH_QUANTIZE_KERNELS_ALIGNED_BUFFER_H_

#include <cstdint>
#include <new>

#include "quantize/kernels/simd_targets.h"
// Included after simd_targets.h, which selects Highway's targets.
#include "hwy/aligned_allocator.h"

namespace ptqwatch::internal {

template <typename T>
using AlignedBuffer = hwy::AlignedFreeUniquePtr<T[]>;

/// `count` uninitialised numbers, aligned for every vector width. Throws std::bad_alloc.
template <typename T>
AlignedBuffer<T> MakeAligned(int64_t count) {
  AlignedBuffer<T> buffer = hwy::AllocateAligned<T>(static_cast<size_t>(count > 0 ? count : 1));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_ALIGNED_BUFFER_H_
