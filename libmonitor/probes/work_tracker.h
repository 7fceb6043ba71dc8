#ifndef PTQWATCH_PROBES_WORK_TRACKER_H_
#define PTQWATCH_PROBES_WORK_TRACKER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace ptqwatch::internal {

/// Keeps the status of the newest work of a kind that runs between snapshots, one at a time:
/// SliceStatus, CooldownStatus. Thread-safe; OnStep never takes this lock.
template <typename Status>
class WorkTracker {
 public:
  /// From now on every request is refused with `reason`; work under way has failed with it.
  void Close(std::string reason) {
    MutexLock lock(mutex_);
    closed_ = reason;
    if (status_.under_way()) End(decltype(Status::state)::kFailed).error = std::move(reason);
  }

  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

  /// The work under way has failed; no effect if there is none.
  void Fail(std::string error) {
    MutexLock lock(mutex_);
    if (status_.under_way()) End(decltype(Status::state)::kFailed).error = std::move(error);
  }

 protected:
  explicit WorkTracker(std::string closed) : closed_(std::move(closed)) {}

  /// Returns the number of the work that begins.
  int64_t Begin(Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    status.number = status_.number + 1;
    status_ = std::move(status);
    return status_.number;
  }
  Status& End(decltype(Status::state) state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    status_.state = state;
    if constexpr (requires { status_.waits_for_core; }) status_.waits_for_core = false;
    return status_;
  }

  mutable Mutex mutex_;
  std::string closed_ ABSL_GUARDED_BY(mutex_);  // why; empty: requests are accepted
  Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_WORK_TRACKER_H_
