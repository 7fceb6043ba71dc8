#ifndef PTQWATCH_PROBES_COOLDOWN_TRACKER_H_
#define PTQWATCH_PROBES_COOLDOWN_TRACKER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "ptqwatch/control.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Accepts or refuses requests for shadow cooldowns, one at a time, and keeps the status of the
/// newest. Thread-safe. Accept and Cancel may be called by anyone, the other writers are the
/// monitor thread's.
class CooldownTracker {
 public:
  /// From now on requests are accepted. `decay_steps` is the length where a request has none; 0: it
  /// must have one.
  void Open(int64_t decay_steps);
  /// From now on every request is refused with `reason`; a cooldown under way has failed with it.
  void Close(std::string reason);

  /// Returns the cooldown's number. InvalidArgument where the length of the decay is negative or
  /// not known, FailedPrecondition while another one is under way and where none can be made.
  absl::StatusOr<int64_t> Accept(const StartCooldown& request);
  /// The one under way has failed as cancelled. FailedPrecondition where there is none.
  absl::Status Cancel();

  CooldownStatus status() const;

  /// Of the one under way; no effect if there is none. `step` is its snapshot's.
  void Progress(int64_t step, int64_t steps_done, int64_t steps_all);
  /// Until the next progress.
  void WaitsForCore();
  void Done(std::string result);
  void Fail(std::string error);

 private:
  mutable Mutex mutex_;
  std::string closed_ ABSL_GUARDED_BY(mutex_) = "this monitor makes none";
  int64_t decay_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  CooldownStatus status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_COOLDOWN_TRACKER_H_
