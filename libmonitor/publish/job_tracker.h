#ifndef PTQWATCH_PUBLISH_JOB_TRACKER_H_
#define PTQWATCH_PUBLISH_JOB_TRACKER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "ptqwatch/control.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Describes the work under way and what the user can do about it.
inline std::string UnderWay(const SliceStatus& status) {
  return StrCat("a slice through ", ShortName(KeyOf(status.request)), " is under way (",
                ToString(status.state), "); ask again when it is done");
}
inline std::string UnderWay(const CooldownStatus& status) {
  return StrCat("shadow cooldown ", status.number, " is under way (", ToString(status.state),
                "); ask again when it is done, or cancel it");
}

/// Accepts or refuses requests for a job, one at a time, and keeps the status of the newest. Any
/// thread may call Accept and Cancel; only the monitor thread calls the other writers. OnStep never
/// takes this lock.
template <typename Request, typename Status>
class JobTracker {
 public:
  /// Returns the initial status of a request, or the reason to refuse it.
  using Check = std::function<absl::StatusOr<Status>(const Request&)>;

  /// `noun` names the job in refusals. Requests are refused until Open is called.
  explicit JobTracker(std::string_view noun) : noun_(noun) {}

  /// Accepts later requests that pass `check`.
  void Open(Check check) {
    MutexLock lock(mutex_);
    check_ = std::move(check);
    closed_.clear();
  }
  /// Refuses all later requests with `reason`; work under way fails with it.
  void Close(std::string reason) {
    MutexLock lock(mutex_);
    closed_ = reason;
    EndWith(std::move(reason));
  }

  /// Returns the number of the new work; `snapshots_taken` counts the snapshots taken before it.
  /// Errors: those of `check`; FailedPrecondition while other work is under way or the tracker is
  /// closed.
  absl::StatusOr<int64_t> Accept(const Request& request, int64_t snapshots_taken = 0) {
    MutexLock lock(mutex_);
    if (!closed_.empty()) return absl::FailedPreconditionError(StrCat("no ", noun_, ": ", closed_));
    absl::StatusOr<Status> begun = check_(request);
    if (!begun.ok()) return begun.status();
    if (status_.under_way()) return absl::FailedPreconditionError(UnderWay(status_));
    begun->number = status_.number + 1;
    status_ = *std::move(begun);
    snapshots_taken_ = snapshots_taken;
    return status_.number;
  }
  /// Fails the current job as cancelled. FailedPrecondition if there is none.
  absl::Status Cancel() {
    MutexLock lock(mutex_);
    if (!status_.under_way()) {
      return absl::FailedPreconditionError(StrCat("no ", noun_, " is under way"));
    }
    EndWith("cancelled by a command");
    return absl::OkStatus();
  }

  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }
  /// Number of snapshots taken before the newest request was accepted.
  int64_t snapshots_taken() const {
    MutexLock lock(mutex_);
    return snapshots_taken_;
  }

  /// Changes the status of the work under way; no effect without such work.
  void Update(absl::FunctionRef<void(Status&)> change) {
    MutexLock lock(mutex_);
    if (!status_.under_way()) return;
    change(status_);
    if constexpr (requires { status_.waits_for_core; }) {
      if (!status_.under_way()) status_.waits_for_core = false;
    }
  }
  /// Fails the current job.
  void Fail(std::string error) {
    MutexLock lock(mutex_);
    EndWith(std::move(error));
  }

 private:
  void EndWith(std::string error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!status_.under_way()) return;
    status_.state = decltype(Status::state)::kFailed;
    status_.error = std::move(error);
    if constexpr (requires { status_.waits_for_core; }) status_.waits_for_core = false;
  }

  const std::string_view noun_;
  mutable Mutex mutex_;
  // Why requests are refused; empty if they are accepted.
  std::string closed_ ABSL_GUARDED_BY(mutex_) = "this monitor makes none";
  Check check_ ABSL_GUARDED_BY(mutex_);
  Status status_ ABSL_GUARDED_BY(mutex_);
  int64_t snapshots_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

using SliceTracker = JobTracker<MakeSlice, SliceStatus>;
using CooldownTracker = JobTracker<StartCooldown, CooldownStatus>;

/// The jobs that commands can request. Thread-safe.
struct JobTrackers {
  SliceTracker slice{"slice"};
  CooldownTracker cooldown{"shadow cooldown"};

  void Close(const std::string& reason) {
    slice.Close(reason);
    cooldown.Close(reason);
  }
  void AddTo(MonitorStatus& status) const {
    status.slice = slice.status();
    status.cooldown = cooldown.status();
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PUBLISH_JOB_TRACKER_H_
