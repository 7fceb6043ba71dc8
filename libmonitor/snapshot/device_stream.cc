#include "snapshot/device_stream.h"

#include <cstring>

#include "ATen/core/grad_mode.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<std::unique_ptr<DeviceStream>> DeviceStream::Create(
    at::Device device, std::optional<c10::Stream> updates) {
  if (updates && updates->device() != device) {
    return absl::FailedPreconditionError(StrCat("the stream that the updates run on is stream ",
                                                updates->id(), " of ", updates->device().str(),
                                                ", but the tensors are on ", device.str()));
  }
  if (device.is_cpu()) return std::make_unique<CpuStream>();
  if (device.is_cuda()) return MakeCudaStream(device, updates);
  return absl::FailedPreconditionError(
      StrCat("the tensors are on ", device.str(), "; only cpu and cuda are supported"));
}

void CpuStream::Copy(const std::vector<at::Tensor>& destinations,
                     const std::vector<at::Tensor>& sources) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < sources.size(); ++i) {
    const at::Tensor& to = destinations[i];
    const at::Tensor& from = sources[i];
    if (to.is_contiguous() && from.is_contiguous()) {
      if (from.nbytes() > 0)
        std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    } else {
      to.copy_(from);
    }
  }
}

}  // namespace ptqwatch::internal
