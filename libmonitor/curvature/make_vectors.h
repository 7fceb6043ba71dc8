#ifndef PTQWATCH_CURVATURE_MAKE_VECTORS_H_
#define PTQWATCH_CURVATURE_MAKE_VECTORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "c10/core/Device.h"

namespace ptqwatch::internal {

class DeviceVectors;

/// Kernels for vectors on `device` that consist of pieces of these sizes. They work on the calling
/// thread's current stream, and so must be used there. Null if there are none: on the CPU, on a
/// default stream, and in builds without CUDA.
std::shared_ptr<DeviceVectors> MakeDeviceVectors(at::Device device,
                                                 const std::vector<int64_t>& sizes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_MAKE_VECTORS_H_
