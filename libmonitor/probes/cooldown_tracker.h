#ifndef PTQWATCH_PROBES_COOLDOWN_TRACKER_H_
#define PTQWATCH_PROBES_COOLDOWN_TRACKER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "probes/work_tracker.h"
#include "ptqwatch/control.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Accepts or refuses shadow cooldowns. Accept and Cancel may be called by anyone, the other
/// writers are the monitor thread's.
class CooldownTracker : public WorkTracker<CooldownStatus> {
 public:
  CooldownTracker() : WorkTracker("this monitor makes none") {}

  /// From now on requests are accepted. `decay_steps` is the length if a request has none; 0: it
  /// must have one.
  void Open(int64_t decay_steps);

  /// Returns the cooldown's number. InvalidArgument if the length of the decay is negative or not
  /// known, FailedPrecondition while another one is under way, and if none can be made.
  absl::StatusOr<int64_t> Accept(const StartCooldown& request);
  /// The one under way has failed as cancelled. FailedPrecondition if there is none.
  absl::Status Cancel();

  /// Progress of the one under way, from the snapshot of `step`; no effect if there is none.
  void Progress(int64_t step, int64_t steps_done, int64_t steps_all);
  /// Until the next progress.
  void WaitsForCore();
  void Done(std::string result);

 private:
  int64_t decay_steps_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_COOLDOWN_TRACKER_H_
