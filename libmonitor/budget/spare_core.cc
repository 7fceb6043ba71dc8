#include "budget/spare_core.h"

#include <algorithm>

namespace ptqwatch::internal {
namespace {

constexpr double kWindowSeconds = 1;
constexpr double kFirstWindowSeconds = 0.1;
// Cores that were idle or used by the monitor: from the first value a core becomes spare; below the
// second it stops being spare.
constexpr double kSpareCores = 0.8;
constexpr double kNoSpareCores = 0.5;
// Share of its runnable time that a thread waits: at most the first if it has a core for itself, at
// least the second if it clearly has not.
constexpr double kLittleWaiting = 0.1;
constexpr double kMuchWaiting = 0.3;
// Throttled share of the time between two readings, summed over the throttled cgroups and CPUs.
constexpr double kThrottled = 0.02;
constexpr double kFirstBackoffSeconds = 10;
constexpr double kLongestBackoffSeconds = 600;

}  // namespace

void SpareCore::Read(const std::optional<CpuReading>& reading) {
  if (options_.on_training_device) return;
  if (!reading) {
    last_.reset();
    known_ = true;
    spare_ = options_.cores_exceed_threads;
    return;
  }
  if (!last_) {
    last_ = reading;
    return;
  }
  const double wall = reading->wall - last_->wall;
  if (wall < (known_ ? kWindowSeconds : kFirstWindowSeconds)) return;
  const double own = reading->own - last_->own;
  const double waited = reading->waited - last_->waited;
  double cores = (reading->idle - last_->idle + own) / wall;
  if (options_.quota_cores) {
    const double others = reading->process - last_->process - own;
    cores = std::min(cores, *options_.quota_cores - others / wall);
  }
  // A thread that hardly ran gives no information about waiting.
  const double waiting = own + waited > 0.05 ? waited / (own + waited) : 0;
  const bool throttled = Throttled(*reading);
  spare_ = !throttled && cores >= (spare_ ? kNoSpareCores : kSpareCores) &&
           waiting <= (spare_ ? kMuchWaiting : kLittleWaiting);
  known_ = true;
  last_ = reading;
}

bool SpareCore::Throttled(const CpuReading& reading) {
  const double seconds = reading.throttled - last_->throttled;
  if (seconds > kThrottled * (reading.wall - last_->wall)) {
    // The monitor caused the throttling only if it worked on a core that it believed spare.
    const double next = spare_ ? 2 * throttle_backoff_ : throttle_backoff_;
    throttle_backoff_ = std::clamp(next, kFirstBackoffSeconds, kLongestBackoffSeconds);
    not_spare_until_ = reading.wall + throttle_backoff_;
  }
  return reading.wall < not_spare_until_;
}

}  // namespace ptqwatch::internal
