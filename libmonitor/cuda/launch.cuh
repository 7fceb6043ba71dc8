#ifndef PTQWATCH_CUDA_LAUNCH_CUH_
#define PTQWATCH_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cuda/kernels/kernel.h"
#include "cuda/launch.h"

namespace ptqwatch::internal {

template <class K, int... kStep>
__device__ void RunTurns(const K& kernel, Place at, typename K::Shared& shared,
                         std::integer_sequence<int, kStep...>) {
  typename K::Local local;
#pragma unroll 1
  for (int turn = 0; turn < K::kTurns; ++turn) {
    (..., (kernel.template RunTurn<kStep>(turn, at, shared, local), __syncthreads()));
  }
}

template <class K, int... kPhase>
__device__ void RunPhases(const K& kernel, Place at, typename K::Shared& shared,
                          std::integer_sequence<int, kPhase...>) {
  typename K::Local local;
  if constexpr (requires { &K::RunPhase; }) {
#pragma unroll 1
    for (int phase = 0; phase < K::kPhases; ++phase) {
      if (phase > 0) __syncthreads();
      kernel.RunPhase(phase, at, shared, local);
    }
  } else {
    (..., (kPhase > 0 ? __syncthreads() : void(), kernel.template Run<kPhase>(at, shared, local)));
  }
}

// Blocks for whose registers a multiprocessor has room, which limits a thread's; 0: no limit.
template <class K>
constexpr int BlocksTogether() {
  if constexpr (requires { K::kTurns; }) return 2;
  return 0;
}

template <class K>
__global__ void __launch_bounds__(K::kThreads, BlocksTogether<K>())
    Entry(const __grid_constant__ K kernel) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Place at{static_cast<int64_t>(blockIdx.x), static_cast<int>(threadIdx.x)};
  typename K::Shared& shared = *reinterpret_cast<typename K::Shared*>(memory);
  if constexpr (requires { K::kTurns; }) {
    RunTurns(kernel, at, shared, std::make_integer_sequence<int, K::kSteps>());
  } else {
    RunPhases(kernel, at, shared, std::make_integer_sequence<int, K::kPhases>());
  }
}

// The smallest limit of a block among the GPUs that the kernels are built for: 8.6, 8.9 and 12.0.
constexpr size_t kMostSharedBytes = size_t{99} << 10;

template <class K>
constexpr size_t SharedBytes() {
  static_assert(sizeof(typename K::Shared) <= kMostSharedBytes);
  return std::is_same_v<typename K::Shared, Nothing> ? 0 : sizeof(typename K::Shared);
}

template <class K>
cudaError_t Launch(const K& kernel, cudaStream_t stream) {
  const int64_t blocks = kernel.Blocks();
  if (blocks == 0) return cudaSuccess;
  if (blocks < 0 || blocks > INT_MAX) return cudaErrorInvalidConfiguration;
  // Returns the launch's own result, because the last error may come from another call.
  K arguments = kernel;
  void* pointers[] = {&arguments};
  return cudaLaunchKernel(Entry<K>, dim3(static_cast<unsigned>(blocks)), dim3(K::kThreads),
                          pointers, SharedBytes<K>(), stream);
}

template <class K>
cudaError_t Prepare() {
  cudaFuncAttributes attributes;
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, Entry<K>);
  if (loaded != cudaSuccess || SharedBytes<K>() <= 48 * 1024) return loaded;
  return cudaFuncSetAttribute(Entry<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(SharedBytes<K>()));
}

}  // namespace ptqwatch::internal

#define PTQWATCH_LAUNCH(K)                                \
  template cudaError_t Launch<K>(const K&, cudaStream_t); \
  template cudaError_t Prepare<K>()

#endif  // PTQWATCH_CUDA_LAUNCH_CUH_
