#ifndef PTQWATCH_CUDA_LAUNCH_H_
#define PTQWATCH_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

namespace ptqwatch::internal {

/// Puts a kernel into the stream. Defined for every alternative of Kernel by the .cu files.
template <class K>
cudaError_t Launch(const K& kernel, cudaStream_t stream);

/// Loads a kernel and sets what it needs of shared memory.
template <class K>
cudaError_t Prepare();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LAUNCH_H_
