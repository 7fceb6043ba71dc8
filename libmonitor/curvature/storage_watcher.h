#ifndef PTQWATCH_CURVATURE_STORAGE_WATCHER_H_
#define PTQWATCH_CURVATURE_STORAGE_WATCHER_H_

#include <cstdint>
#include <unordered_map>

#include "ATen/record_function.h"
#include "c10/core/StorageImpl.h"
#include "c10/util/intrusive_ptr.h"

namespace ptqwatch::internal {

/// Observes the memory of every tensor that an operator returns on this thread, from construction
/// to Stop, without keeping it alive. The difference of LiveBytes before and after an object is
/// destroyed is the memory that it held, on any device. At most one exists per thread.
class StorageWatcher {
 public:
  StorageWatcher();
  ~StorageWatcher() { Stop(); }
  StorageWatcher(const StorageWatcher&) = delete;
  StorageWatcher& operator=(const StorageWatcher&) = delete;
  void Stop();

  /// Bytes of the observed tensors that still exist, each storage counted once.
  int64_t LiveBytes() const;
  /// The number of operators observed; 0 if RecordFunction is switched off on this thread.
  int64_t operators() const { return operators_; }

 private:
  static void OnEnd(const at::RecordFunction& record, at::ObserverContext* context);
  void See(const at::Tensor& tensor);

  // The weak reference keeps the address from being reused.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
  int64_t operators_ = 0;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_STORAGE_WATCHER_H_
