// Compiled with NDEBUG: the layout of at::RecordFunction depends on it and must match LibTorch's.
#include "curvature/storage_watcher.h"

#include <memory>

namespace ptqwatch::internal {
namespace {

// The callback cannot carry state.
thread_local StorageWatcher* current = nullptr;

}  // namespace

StorageWatcher::StorageWatcher() {
  current = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(nullptr, &StorageWatcher::OnEnd)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

void StorageWatcher::Stop() {
  if (current != this) return;
  at::removeCallback(handle_);
  current = nullptr;
}

void StorageWatcher::OnEnd(const at::RecordFunction& record, at::ObserverContext*) {
  if (current == nullptr) return;
  ++current->operators_;
  for (const c10::IValue& output : record.outputs()) {
    if (output.isTensor()) {
      current->See(output.toTensor());
    } else if (output.isTensorList()) {
      for (const at::Tensor& tensor : output.toTensorVector()) current->See(tensor);
    }
  }
}

void StorageWatcher::See(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  seen_.try_emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
}

int64_t StorageWatcher::LiveBytes() const {
  int64_t bytes = 0;
  for (const auto& [address, weak] : seen_) {
    const c10::intrusive_ptr<c10::StorageImpl> storage = weak.lock();
    if (storage.defined()) bytes += static_cast<int64_t>(storage->nbytes());
  }
  return bytes;
}

}  // namespace ptqwatch::internal
