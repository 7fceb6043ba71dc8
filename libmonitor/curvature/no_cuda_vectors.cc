// Compiled into builds without CUDA.
#include "curvature/make_vectors.h"

namespace ptqwatch::internal {

std::shared_ptr<DeviceVectors> MakeDeviceVectors(at::Device, const std::vector<int64_t>&) {
  return nullptr;
}

}  // namespace ptqwatch::internal
