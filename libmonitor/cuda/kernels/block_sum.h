#ifndef PTQWATCH_CUDA_KERNELS_BLOCK_SUM_H_
#define PTQWATCH_CUDA_KERNELS_BLOCK_SUM_H_

#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Adds up one number per thread of a block, in a fixed order.
template <int kThreads>
struct BlockSum {
  static constexpr int kParts = 16;
  static_assert(kThreads % kParts == 0);

  double value[kThreads];
  double part[kParts];

  /// Call in the first phase after `value` was written.
  PTQWATCH_HOST_DEVICE void AddParts(int thread) {
    if (thread >= kParts) return;
    double sum = 0;
    for (int i = 0; i < kThreads / kParts; ++i) sum += value[thread * (kThreads / kParts) + i];
    part[thread] = sum;
  }
  /// Call in the phase after AddParts.
  PTQWATCH_HOST_DEVICE double Total() const {
    double sum = 0;
    for (int i = 0; i < kParts; ++i) sum += part[i];
    return sum;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_BLOCK_SUM_H_
