#include <gtest/gtest.h>

#include "cuda/cuda_device.h"
#include "support/device_run.h"

namespace ptqwatch::testing {

std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes) {
  // One for all tests: it is given back by the driver.
  static cudaStream_t stream = nullptr;
  const absl::StatusOr<bool> any = internal::HasGpu();
  EXPECT_TRUE(any.ok()) << any.status();
  if (!any.ok()) return nullptr;
  if (!*any) {
    [] { GTEST_SKIP() << "there is no GPU"; }();
    return nullptr;
  }
  if (stream == nullptr) {
    const absl::Status made = internal::CudaStatus(
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    EXPECT_TRUE(made.ok()) << made;
    if (!made.ok()) return nullptr;
  }
  absl::StatusOr<std::unique_ptr<internal::CudaDevice>> device = internal::CudaDevice::Create(
      {.stream = stream, .bytes = internal::CudaDevice::kWorkspaceBytes + bytes});
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

bool BatchesAreExact() { return false; }

}  // namespace ptqwatch::testing
