#ifndef PTQWATCH_CUDA_GROUP_STEPS_H_
#define PTQWATCH_CUDA_GROUP_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// Queues the group's attempt. Takes GroupBytes from the arena during the call.
absl::Status RunGroup(LayerGroup group, Queue& queue);

/// The arena memory that RunGroup needs.
absl::StatusOr<int64_t> GroupBytes(LayerGroup group, ComputeDevice& device);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GROUP_STEPS_H_
