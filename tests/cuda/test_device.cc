#include <gtest/gtest.h>

#include "cuda/cuda_device.h"
#include "support/device_run.h"

namespace ptqwatch::testing {

std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes) {
  // One for all tests: it is given back by the driver.
  static cudaStream_t stream = nullptr;
  if (stream == nullptr &&
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    [] { GTEST_SKIP() << "there is no GPU"; }();
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<internal::CudaDevice>> device =
      internal::CudaDevice::Create({.stream = stream, .bytes = bytes});
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

bool BatchesAreExact() { return false; }

}  // namespace ptqwatch::testing
