#include "capture/gathered_weights.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/empty.h"

namespace ptqwatch::internal {

void GatheredWeights::Note(const Gather& gather, const at::Tensor& copy) {
  if (!copy.defined() || copy.dim() != 3 || copy.numel() == 0 || copy.is_inference()) return;
  std::erase_if(copies_, [](const auto& item) { return item.second.storage.expired(); });
  copies_.insert_or_assign(
      copy.storage().unsafeGetStorageImpl(),
      Copy{c10::weak_intrusive_ptr<c10::StorageImpl>(copy.storage().getWeakStorageImpl()), gather,
           Layout::Of(copy), copy.storage_offset(), copy._version()});
}

std::optional<GatheredWeights::Found> GatheredWeights::Find(const at::Tensor& factors) const {
  if (copies_.empty() || !factors.defined() || !factors.has_storage()) return std::nullopt;
  const auto found = copies_.find(factors.storage().unsafeGetStorageImpl());
  if (found == copies_.end() || found->second.storage.expired()) return std::nullopt;
  const Copy& copy = found->second;
  if (factors.dim() != 3 || factors.storage_offset() != copy.offset) return std::nullopt;
  const bool plain = Layout::Of(factors) == copy.layout;
  if (!plain && Layout::Of(factors.transpose(1, 2)) != copy.layout) return std::nullopt;
  return Found{copy.gather, plain == copy.gather.turned, factors._version() != copy.version};
}

std::map<int64_t, at::Tensor> PlacesOf(const at::Tensor& index, int64_t count) {
  const at::Tensor values = index.to(at::kCPU, at::kLong).contiguous();
  const int64_t* value = values.const_data_ptr<int64_t>();
  std::map<int64_t, std::vector<int64_t>> places;
  for (int64_t i = 0; i < values.numel(); ++i) {
    places[value[i] < 0 ? value[i] + count : value[i]].push_back(i);
  }
  std::map<int64_t, at::Tensor> tensors;
  for (const auto& [key, list] : places) {
    const at::Tensor tensor = at::empty({std::ssize(list)}, at::kLong);
    std::copy(list.begin(), list.end(), tensor.mutable_data_ptr<int64_t>());
    tensors.emplace(key, tensor.to(index.device()));
  }
  return tensors;
}

}  // namespace ptqwatch::internal
