#include "capture/weight_finder.h"

#include <iterator>
#include <utility>

namespace ptqwatch::internal {

Layout Layout::Of(const at::Tensor& tensor) {
  Layout layout{tensor.sizes().vec(), tensor.strides().vec()};
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    if (layout.sizes[i] <= 1) layout.strides[i] = 0;
  }
  return layout;
}

Layout Layout::Transposed() const {
  Layout turned = *this;
  const size_t last = sizes.size() - 1;
  std::swap(turned.sizes[last], turned.sizes[last - 1]);
  std::swap(turned.strides[last], turned.strides[last - 1]);
  return turned;
}

WeightFinder::WeightFinder(const TensorTable& table) : table_(table) {
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const at::Tensor& tensor = table.entries[i].tensor;
    if (tensor.numel() == 0 || !table.entries[i].is_parameter) continue;
    entry_at_.emplace(static_cast<const char*>(tensor.const_data_ptr()), static_cast<int>(i));
  }
}

int WeightFinder::EntryAt(const void* address) const {
  const char* byte = static_cast<const char*>(address);
  const auto after = entry_at_.upper_bound(byte);
  if (after == entry_at_.begin()) return -1;
  const auto [begin, entry] = *std::prev(after);
  return byte < begin + parameter(entry).nbytes() ? entry : -1;
}

std::optional<FoundWeight> WeightFinder::Find(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return std::nullopt;
  // All parameters may share one storage, so the address identifies them.
  if (const int entry = EntryAt(tensor.const_data_ptr()); entry >= 0) {
    return FoundWeight{entry, tensor, false};
  }
  const auto found = copies_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == copies_.end()) return std::nullopt;
  const Copy& copy = found->second;
  FoundWeight weight{copy.original.entry, {}, copy.original.rewritten};
  weight.rewritten |= tensor.is_inference() || tensor._version() != copy.version;
  if (tensor.storage_offset() != copy.offset || !copy.original.view.defined()) return weight;
  const Layout layout = Layout::Of(tensor);
  if (layout == copy.layout) {
    weight.view = copy.original.view;
  } else if (layout.sizes.size() >= 2 && layout.sizes.size() == copy.layout.sizes.size() &&
             layout == copy.layout.Transposed()) {
    weight.view = copy.original.view.transpose(-2, -1);
  }
  return weight;
}

bool WeightFinder::IsTurned(const FoundWeight& weight) const {
  const at::Tensor& stored = parameter(weight.entry);
  return weight.view.defined() && stored.dim() == 2 &&
         Layout::Of(weight.view) == Layout::Of(stored).Transposed();
}

void WeightFinder::NoteCopy(const FoundWeight& original, const at::Tensor& copy) {
  // Inference tensors are ignored: they have no version counter to detect writes.
  if (!copy.defined() || !copy.has_storage() || copy.numel() == 0 || copy.is_inference()) return;
  if (EntryAt(copy.const_data_ptr()) >= 0) return;  // the parameter itself, not a copy
  std::erase_if(copies_, [](const auto& item) { return item.second.storage.expired(); });
  copies_.insert_or_assign(
      copy.storage().unsafeGetStorageImpl(),
      Copy{c10::weak_intrusive_ptr<c10::StorageImpl>(copy.storage().getWeakStorageImpl()), original,
           Layout::Of(copy), copy.storage_offset(), copy._version()});
}

void WeightFinder::NoteWrite(const at::Tensor& written) {
  if (!written.defined() || !written.has_storage()) return;
  const auto found = copies_.find(written.storage().unsafeGetStorageImpl());
  if (found != copies_.end()) found->second.original.rewritten = true;
}

}  // namespace ptqwatch::internal
