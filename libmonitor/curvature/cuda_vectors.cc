// Compiled into builds with CUDA. The binary also runs on machines without a GPU.
#include <optional>
#include <utility>

#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "cuda/cuda_device.h"
#include "cuda/device_vectors.h"
#include "curvature/make_vectors.h"

namespace ptqwatch::internal {
namespace {

// Destroyed from the last member to the first.
struct CudaVectors {
  at::Tensor memory;
  std::unique_ptr<CudaDevice> compute;
  std::optional<DeviceVectors> vectors;
};

absl::StatusOr<std::shared_ptr<DeviceVectors>> OnCuda(at::Device device,
                                                      const std::vector<int64_t>& sizes) {
  const c10::cuda::CUDAGuard guard(device);
  auto made = std::make_shared<CudaVectors>();
  const int64_t bytes = DeviceVectors::Bytes(sizes);
  made->memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  PTQWATCH_ASSIGN_OR_RETURN(
      made->compute,
      CudaDevice::Create({.stream = c10::cuda::getCurrentCUDAStream(device.index()).stream(),
                          .bytes = bytes,
                          .memory = made->memory.mutable_data_ptr(),
                          .libraries = false}));
  PTQWATCH_ASSIGN_OR_RETURN(made->vectors, DeviceVectors::Create(*made->compute, sizes));
  return std::shared_ptr<DeviceVectors>(made, &*made->vectors);
}

}  // namespace

std::shared_ptr<DeviceVectors> MakeDeviceVectors(at::Device device,
                                                 const std::vector<int64_t>& sizes) {
  if (!device.is_cuda()) return nullptr;
  return Guard([&] { return OnCuda(device, sizes); }).value_or(nullptr);
}

}  // namespace ptqwatch::internal
