#ifndef PTQWATCH_TESTS_CUDA_SPIN_H_
#define PTQWATCH_TESTS_CUDA_SPIN_H_

#include <cuda_runtime_api.h>

namespace ptqwatch::testing {

/// Queues a kernel of one thread that takes so long.
cudaError_t QueueSpin(cudaStream_t stream, long long nanoseconds);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_CUDA_SPIN_H_
