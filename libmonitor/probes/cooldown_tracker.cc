#include "probes/cooldown_tracker.h"

#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {

void CooldownTracker::Open(int64_t decay_steps) {
  MutexLock lock(mutex_);
  decay_steps_ = decay_steps;
  closed_.clear();
}

absl::StatusOr<int64_t> CooldownTracker::Accept(const StartCooldown& request) {
  MutexLock lock(mutex_);
  if (!closed_.empty()) {
    return absl::FailedPreconditionError(StrCat("no shadow cooldown: ", closed_));
  }
  if (request.decay_steps < 0) {
    return absl::InvalidArgumentError(
        StrCat("decay_steps = ", request.decay_steps, ": must be positive"));
  }
  const int64_t decay_steps = request.decay_steps > 0 ? request.decay_steps : decay_steps_;
  if (decay_steps == 0) {
    return absl::InvalidArgumentError(
        "decay_steps = 0: the length of the planned decay is in neither the request nor "
        "MonitorOptions.cooldown.decay_steps");
  }
  if (status_.under_way()) {
    return absl::FailedPreconditionError(StrCat("shadow cooldown ", status_.number,
                                                " is under way (", ToString(status_.state),
                                                "); ask again when it is done, or cancel it"));
  }
  return Begin({.state = CooldownState::kWaiting, .decay_steps = decay_steps});
}

absl::Status CooldownTracker::Cancel() {
  MutexLock lock(mutex_);
  if (!status_.under_way()) {
    return absl::FailedPreconditionError("no shadow cooldown is under way");
  }
  End(CooldownState::kFailed).error = "cancelled by a command";
  return absl::OkStatus();
}

void CooldownTracker::Progress(int64_t step, int64_t steps_done, int64_t steps_all) {
  MutexLock lock(mutex_);
  if (!status_.under_way()) return;
  status_.state = CooldownState::kSimulating;
  status_.step = step;
  status_.steps_done = steps_done;
  status_.steps_all = steps_all;
  status_.waits_for_core = false;
}

void CooldownTracker::WaitsForCore() {
  MutexLock lock(mutex_);
  if (status_.state == CooldownState::kSimulating) status_.waits_for_core = true;
}

void CooldownTracker::Done(std::string result) {
  MutexLock lock(mutex_);
  if (status_.under_way()) End(CooldownState::kDone).result = std::move(result);
}

}  // namespace ptqwatch::internal
