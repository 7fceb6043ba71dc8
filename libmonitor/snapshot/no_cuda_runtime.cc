// Compiled into builds without CUDA.
#include "base/strings.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {

absl::StatusOr<std::shared_ptr<DeviceRuntime>> MakeCudaRuntime(at::Device device) {
  return absl::FailedPreconditionError(
      StrCat("the model is on ", device.str(),
             ", but ptqwatch was built without CUDA (PTQWATCH_CUDA=OFF, or no CUDA toolkit was "
             "found)"));
}

void CopyAcross(const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }

void CheckNotCapturing(const c10::Stream&) {}

absl::Status CheckCudaAllocator() { return absl::OkStatus(); }

DeviceRuntime::Stream CudaStreamOf(const c10::Stream&) { return nullptr; }

}  // namespace ptqwatch::internal
