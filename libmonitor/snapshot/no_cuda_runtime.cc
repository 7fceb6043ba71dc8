// For builds without CUDA.
#include "base/strings.h"
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {

absl::StatusOr<std::unique_ptr<DeviceStream>> MakeCudaStream(at::Device device,
                                                             std::optional<c10::Stream>) {
  return absl::FailedPreconditionError(StrCat("the tensors are on ", device.str(),
                                              ", but ptqwatch was built without CUDA "
                                              "(PTQWATCH_CUDA=OFF, or no CUDA toolkit was found)"));
}

}  // namespace ptqwatch::internal
