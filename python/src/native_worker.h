#ifndef PTQWATCH_PYTHON_NATIVE_WORKER_H_
#define PTQWATCH_PYTHON_NATIVE_WORKER_H_

#include <memory>
#include <utility>

#include "staging/worker_link.h"

namespace ptqwatch::python {

/// Exit status of a worker whose losses function does not return.
inline constexpr int kSilentStatus = 75;

/// The worker's link to its trainer, as Python sees it. Its methods are called without the
/// interpreter's lock.
class NativeWorker {
 public:
  explicit NativeWorker(std::unique_ptr<internal::WorkerLink> link) : link_(std::move(link)) {}

  /// Passes on the trainer's signals until Stop. Ends the process if the trainer ends, or if the
  /// losses function does not return.
  void Run();
  void Stop() { link_->Stop(); }
  void CountAlarm() { link_->CountAlarm(); }
  internal::WorkerLink* link() { return link_.get(); }

 private:
  const std::unique_ptr<internal::WorkerLink> link_;
};

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_NATIVE_WORKER_H_
