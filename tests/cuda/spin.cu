#include "cuda/spin.h"

namespace ptqwatch::testing {
namespace {

__device__ unsigned long long Nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void Spin(unsigned long long nanoseconds) {
  const unsigned long long begin = Nanoseconds();
  while (Nanoseconds() - begin < nanoseconds) {
  }
}

}  // namespace

cudaError_t QueueSpin(cudaStream_t stream, long long nanoseconds) {
  unsigned long long count = static_cast<unsigned long long>(nanoseconds);
  void* arguments[] = {&count};
  return cudaLaunchKernel(Spin, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace ptqwatch::testing
