#ifndef PTQWATCH_CUDA_GROUP_STEPS_H_
#define PTQWATCH_CUDA_GROUP_STEPS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {

/// A method's part on a device: its row of the table in group_steps.cc.
struct DeviceMethod {
  const Method* method = nullptr;
  /// Grids, codes and decoded weights of a group.
  absl::Status (*quantize)(const LayerGroup& group, Queue& queue) = nullptr;
  /// Reserves in `arena` the memory that `quantize` needs beside FitGrids. Null: none.
  absl::Status (*take)(const LayerGroup& group, Arena& arena) = nullptr;
  /// Null: all specs.
  bool (*supports)(const QuantizerSpec& spec) = nullptr;
};

/// Null if the method has no part on a device: it is then quantized on the host.
const DeviceMethod* FindDeviceMethod(const Method& method);

/// Queues the group's attempt. Takes GroupBytes from the arena during the call.
absl::Status RunGroup(LayerGroup group, Queue& queue);

/// The arena memory that RunGroup needs.
absl::StatusOr<int64_t> GroupBytes(LayerGroup group);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GROUP_STEPS_H_
