// The build without CUDA.
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {

std::unique_ptr<DeviceStream> DeviceStream::Create(at::Device) {
  return std::make_unique<CpuStream>();
}

}  // namespace ptqwatch::internal
