#ifndef PTQWATCH_CURVATURE_STORAGE_WATCHER_H_
#define PTQWATCH_CURVATURE_STORAGE_WATCHER_H_

#include <cstdint>
#include <unordered_map>

#include "ATen/record_function.h"
#include "c10/core/StorageImpl.h"
#include "c10/util/intrusive_ptr.h"

namespace ptqwatch::internal {

/// Observes the memory of every tensor that an operator returns on this thread, from its
/// construction to Stop, without keeping any of it alive. The difference of LiveBytes before and
/// after something is destroyed is the memory it held, on any device. At most one at a time on a
/// thread.
class StorageWatcher {
 public:
  StorageWatcher();
  ~StorageWatcher() { Stop(); }
  StorageWatcher(const StorageWatcher&) = delete;
  StorageWatcher& operator=(const StorageWatcher&) = delete;
  void Stop();

  /// Bytes of the observed tensors that still exist, each storage counted once.
  int64_t LiveBytes() const;
  /// Operators observed; 0 where the thread has RecordFunction switched off.
  int64_t operators() const { return operators_; }

 private:
  static void OnEnd(const at::RecordFunction& record, at::ObserverContext* context);
  void See(const at::Tensor& tensor);

  // The weak reference keeps the address from being used again.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
  int64_t operators_ = 0;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_STORAGE_WATCHER_H_
