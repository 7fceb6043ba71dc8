#ifndef PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_
#define PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_

#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// For each tensor that is not on `device`, returns a copy there with the same values, strides and
/// ties; for the others, an undefined tensor. Throws c10::Error as ATen does.
std::vector<at::Tensor> CopiesOnDevice(const std::vector<NamedTensor>& tensors, at::Device device);

/// Returns FailedPrecondition if a tensor that is not on `device` shares memory with `live`.
absl::Status CheckOwnMemory(const std::vector<NamedTensor>& tensors, const TensorTable& live,
                            at::Device device);

/// Moves the tensors that are not on `device` there, keeping handles, values, strides and ties.
/// Throws c10::Error as ATen does.
void MoveToDevice(const std::vector<NamedTensor>& tensors, at::Device device);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_
