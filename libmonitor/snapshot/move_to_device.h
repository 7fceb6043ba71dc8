#ifndef PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_
#define PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_

#include <vector>

#include "absl/status/status.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// For each tensor that is not on `device` one there, with the same values, strides and ties;
/// otherwise an undefined one. Throws c10::Error as ATen does.
std::vector<at::Tensor> CopiesOnDevice(const std::vector<NamedTensor>& tensors, at::Device device);

/// FailedPrecondition if a tensor that is not on `device` has memory of `live`.
absl::Status CheckOwnMemory(const std::vector<NamedTensor>& tensors, const TensorTable& live,
                            at::Device device);

/// Gives the tensors that are not on `device` memory there, with the same values, strides and ties;
/// the handles stay. Throws c10::Error as ATen does.
void MoveToDevice(const std::vector<NamedTensor>& tensors, at::Device device);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MOVE_TO_DEVICE_H_
