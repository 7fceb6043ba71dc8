// Compiled into builds with CUDA. The binary also runs on machines without a GPU.
#include <utility>

#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "capture/device_backend.h"
#include "capture/quantize_backend.h"
#include "cuda/cuda_device.h"

namespace ptqwatch::internal {
namespace {

absl::StatusOr<std::unique_ptr<QuantizeBackend>> OnCuda(
    at::Device device, const BackendNeeds& needs,
    absl::FunctionRef<absl::Status(int64_t)> reserve) {
  const c10::cuda::CUDAGuard guard(device);
  CudaDeviceOptions options{.stream = c10::cuda::getCurrentCUDAStream(device.index()).stream()};
  // A device without memory, which only tells how much is needed.
  PTQWATCH_ASSIGN_OR_RETURN(const auto asked, CudaDevice::Create(options));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t arena, DeviceArenaBytes(*asked, needs));
  options.bytes = CudaDevice::kWorkspaceBytes + arena;
  PTQWATCH_RETURN_IF_ERROR(reserve(options.bytes));
  at::Tensor memory =
      at::empty({options.bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  options.memory = memory.mutable_data_ptr();
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> compute, CudaDevice::Create(options));
  auto backend = std::make_unique<DeviceBackend>(device, std::move(compute), std::move(memory));
  // Memory that is short here may still be enough for real layers.
  const absl::Status warm = Guard([&] { return backend->Warm(needs); });
  if (!warm.ok() && !absl::IsResourceExhausted(warm)) return warm;
  return backend;
}

}  // namespace

std::unique_ptr<QuantizeBackend> MakeBackend(at::Device device, const BackendNeeds& needs,
                                             absl::FunctionRef<absl::Status(int64_t)> reserve) {
  if (!device.is_cuda()) return std::make_unique<HostBackend>();
  absl::StatusOr<std::unique_ptr<QuantizeBackend>> backend =
      Guard([&] { return OnCuda(device, needs, reserve); });
  if (backend.ok()) return *std::move(backend);
  Log(Severity::kWarning, StrCat("weights are quantized on the CPU: ", Message(backend.status())));
  return std::make_unique<HostBackend>();
}

}  // namespace ptqwatch::internal
