// The device for twin_test: a GPU beside the host's loops, on memory that both can reach.
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/cuda_device.h"
#include "support/device_run.h"
#include "support/twin_device.h"

namespace ptqwatch::testing {
namespace {

using internal::CudaDevice;
using internal::CudaStatus;

absl::StatusOr<std::unique_ptr<TwinDevice>> MakeTwin(int64_t bytes) {
  // One for all tests: it is given back by the driver.
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) {
    PTQWATCH_RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      auto gpu, CudaDevice::Create({.stream = stream, .bytes = CudaDevice::kWorkspaceBytes}));
  void* memory = nullptr;
  PTQWATCH_RETURN_IF_ERROR(
      CudaStatus(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocMapped),
                 "allocating memory that both can reach"));
  std::shared_ptr<void> owner(memory, [](void* mapped) { cudaFreeHost(mapped); });
  std::memset(memory, 0xff, static_cast<size_t>(bytes));
  void* seen_by_gpu = nullptr;
  PTQWATCH_RETURN_IF_ERROR(
      CudaStatus(cudaHostGetDevicePointer(&seen_by_gpu, memory, 0), "mapping memory"));
  if (seen_by_gpu != memory) return absl::UnavailableError("the GPU has other addresses");
  return std::make_unique<TwinDevice>(std::move(gpu), std::move(owner), bytes);
}

}  // namespace

std::unique_ptr<internal::ComputeDevice> MakeTestDevice(int64_t bytes) {
  const absl::StatusOr<bool> any = internal::HasGpu();
  EXPECT_TRUE(any.ok()) << any.status();
  if (!any.ok()) return nullptr;
  if (!*any) {
    [] { GTEST_SKIP() << "there is no GPU"; }();
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<TwinDevice>> twin = MakeTwin(bytes);
  EXPECT_TRUE(twin.ok()) << twin.status();
  return twin.ok() ? *std::move(twin) : nullptr;
}

bool BatchesAreExact() { return false; }

}  // namespace ptqwatch::testing
