// Calls of the CUDA runtime that only a driver can answer, answered by this program.
#include <cuda_runtime_api.h>

#include <utility>

#include "gtest/gtest.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::pretended_driver_test {
namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t Answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

// They come before those of libcudart, also for LibTorch.
extern "C" {
#define PRETENDED __attribute__((visibility("default"))) cudaError_t
PRETENDED cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
PRETENDED cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
PRETENDED cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
PRETENDED cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 1 << 20, cudaSuccess;
}
PRETENDED cudaStreamQuery(cudaStream_t) { return Answer(cudaErrorNotReady); }
PRETENDED cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
PRETENDED cudaPeekAtLastError() { return last_error; }
PRETENDED cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
#undef PRETENDED
}

// LibTorch throws at the next check of a launch if an error is left.
TEST(PretendedDriver, WorkThatIsQueuedLeavesNoError) {
  const auto runtime = internal::MakeCudaRuntime(at::Device(at::kCUDA, 0));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_TRUE((*runtime)->Fault().ok());
  EXPECT_EQ(last_error, cudaSuccess);
}

}  // namespace ptqwatch::pretended_driver_test
