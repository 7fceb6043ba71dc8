#include "snapshot/move_to_device.h"

#include <map>

#include "ATen/core/grad_mode.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// The whole storage of a tensor as a one-dimensional tensor.
at::Tensor WholeOf(const at::Tensor& tensor) {
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
  return tensor.detach().as_strided({elements}, {1}, 0);
}

}  // namespace

std::vector<at::Tensor> CopiesOnDevice(const std::vector<NamedTensor>& tensors, at::Device device) {
  at::NoGradGuard no_grad;
  std::map<const c10::StorageImpl*, int> users;
  for (const NamedTensor& named : tensors) {
    if (named.tensor.defined()) ++users[named.tensor.storage().unsafeGetStorageImpl()];
  }
  std::map<const c10::StorageImpl*, at::Tensor> moved;
  std::vector<at::Tensor> copies;
  for (const NamedTensor& named : tensors) {
    const at::Tensor& tensor = named.tensor;
    at::Tensor& copy = copies.emplace_back();
    if (!tensor.defined() || tensor.device() == device) continue;
    const c10::StorageImpl* const memory = tensor.storage().unsafeGetStorageImpl();
    if (users[memory] == 1) {
      copy = tensor.detach().to(device);
      continue;
    }
    at::Tensor& whole = moved[memory];
    if (!whole.defined()) whole = WholeOf(tensor).to(device);
    // MakeTensorTable does not treat views of different dtypes as tied.
    const bool tied = whole.scalar_type() == tensor.scalar_type();
    copy = (tied ? whole : WholeOf(tensor).to(device))
               .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return copies;
}

absl::Status CheckOwnMemory(const std::vector<NamedTensor>& tensors, const TensorTable& live,
                            at::Device device) {
  std::map<const c10::StorageImpl*, const TensorEntry*> owners;
  for (const TensorEntry& entry : live.entries) {
    owners.emplace(entry.tensor.storage().unsafeGetStorageImpl(), &entry);
  }
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.defined() || named.tensor.device() == device) continue;
    const auto owner = owners.find(named.tensor.storage().unsafeGetStorageImpl());
    if (owner == owners.end()) continue;
    return absl::FailedPreconditionError(
        StrCat("the replica shares the memory of '", owner->second->name,
               "' with the live model; the replica function must build a model of its own"));
  }
  return absl::OkStatus();
}

void MoveToDevice(const std::vector<NamedTensor>& tensors, at::Device device) {
  const std::vector<at::Tensor> copies = CopiesOnDevice(tensors, device);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor handle = tensors[i].tensor;
    if (copies[i].defined()) handle.set_data(copies[i]);
  }
}

}  // namespace ptqwatch::internal
