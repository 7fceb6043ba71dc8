#ifndef PTQWATCH_CUDA_LAUNCH_H_
#define PTQWATCH_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

namespace ptqwatch::internal {

/// Puts a kernel into the stream. The .cu files define it for every alternative of Kernel.
template <class K>
cudaError_t Launch(const K& kernel, cudaStream_t stream);

/// Loads a kernel and configures its shared memory.
template <class K>
cudaError_t Prepare();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LAUNCH_H_
