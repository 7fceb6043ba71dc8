#include "snapshot/move_to_device.h"

#include <map>

#include "ATen/core/grad_mode.h"

namespace ptqwatch::internal {
namespace {

// All elements of the memory that a tensor is a view of.
at::Tensor WholeOf(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
  return tensor.detach().as_strided({elements}, {1}, 0);
}

}  // namespace

std::vector<at::Tensor> CopiesOnDevice(const std::vector<NamedTensor>& tensors, at::Device device) {
  at::NoGradGuard no_grad;
  std::map<const c10::StorageImpl*, at::Tensor> moved;
  std::vector<at::Tensor> copies;
  for (const NamedTensor& named : tensors) {
    const at::Tensor& tensor = named.tensor;
    at::Tensor& copy = copies.emplace_back();
    if (!tensor.defined() || tensor.device() == device) continue;
    at::Tensor& whole = moved[tensor.storage().unsafeGetStorageImpl()];
    if (!whole.defined()) whole = WholeOf(tensor).to(device);
    // A tie between two types is none to MakeTensorTable.
    const bool tied = whole.scalar_type() == tensor.scalar_type();
    copy = (tied ? whole : WholeOf(tensor).to(device))
               .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return copies;
}

void MoveToDevice(const std::vector<NamedTensor>& tensors, at::Device device) {
  const std::vector<at::Tensor> copies = CopiesOnDevice(tensors, device);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor handle = tensors[i].tensor;
    if (copies[i].defined()) handle.set_data(copies[i]);
  }
}

}  // namespace ptqwatch::internal
