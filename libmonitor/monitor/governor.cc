#include "monitor/governor.h"

#include <algorithm>
#include <cmath>

namespace ptqwatch::internal {
namespace {

constexpr double kWindowSeconds = 1;
constexpr double kFirstWindowSeconds = 0.1;
// Cores that were idle or the monitor's own: from the first on there is a spare one, below the
// second there is none any more.
constexpr double kSpareCores = 0.8;
constexpr double kNoSpareCores = 0.5;
// Share of its runnable time that a thread spends waiting where it has a core for itself, and where
// it certainly has not.
constexpr double kLittleWaiting = 0.1;
constexpr double kMuchWaiting = 0.3;
// Of the time between two readings, summed over the cgroups and CPUs that were throttled.
constexpr double kThrottled = 0.02;
constexpr double kFirstBackoffSeconds = 10;
constexpr double kLongestBackoffSeconds = 600;
constexpr double kShareWithoutSpareCore = 0.25;
constexpr double kMostSavedSeconds = 30;
// Of slower steps. Neighbouring steps are alike, so a reading is less sure than it seems, and one
// moves the mean by no more than `kLargestSurprise` before the next confirms it.
constexpr double kLeastError = 0.005;
constexpr double kLargestSurprise = 0.05;
constexpr double kForgetting = 0.9;  // from one reading to the next
constexpr double kSureErrors = 3;
constexpr double kStillSureErrors = 1.5;

}  // namespace

void Governor::Read(const std::optional<CpuReading>& reading) {
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
  // A thread that hardly ran says nothing about waiting.
  const double waiting = own + waited > 0.05 ? waited / (own + waited) : 0;
  const bool throttled = Throttled(*reading);
  if (spare_) {
    spare_ = cores >= kNoSpareCores && waiting <= kMuchWaiting;
  } else {
    spare_ = cores >= kSpareCores && waiting <= kLittleWaiting;
  }
  if (throttled) spare_ = false;
  known_ = true;
  last_ = reading;
}

bool Governor::Throttled(const CpuReading& reading) {
  const double seconds = reading.throttled - last_->throttled;
  if (seconds > kThrottled * (reading.wall - last_->wall)) {
    // Only where the monitor took a core for spare is the throttling its own doing.
    const double next = spare_ ? 2 * throttle_backoff_ : throttle_backoff_;
    throttle_backoff_ = std::clamp(next, kFirstBackoffSeconds, kLongestBackoffSeconds);
    not_spare_until_ = reading.wall + throttle_backoff_;
  }
  return reading.wall < not_spare_until_;
}

void Governor::Worked(double seconds, double now) {
  saved_ = SavedAt(now);
  last_charge_ = now;
  if (rests()) saved_ -= seconds;
}

double Governor::SavedAt(double now) const {
  const double share = rests() ? LongRunShare() : ShareWithoutSpareCore();
  return std::min(kMostSavedSeconds, saved_ + share * (now - last_charge_));
}

double Governor::ShareWithoutSpareCore() const {
  // What a GPU does for the monitor it does not do for training, second by second.
  return std::min(1.0, (options_.on_training_device ? 1 : 2) * options_.max_overhead);
}

void Governor::Slowed(double ratio, double stderr_ratio) {
  if (!spare()) return;
  const double before = evidence_ > 0 ? weighted_ / evidence_ : 0;
  const double seen = std::clamp(ratio, before - kLargestSurprise, before + kLargestSurprise);
  const double weight = 1 / (stderr_ratio * stderr_ratio + kLeastError * kLeastError);
  evidence_ = kForgetting * evidence_ + weight;
  weighted_ = kForgetting * weighted_ + weight * seen;
  const double mean = weighted_ / evidence_;
  const double errors = slowdown_ > 0 ? kStillSureErrors : kSureErrors;
  slowdown_ = mean > errors / std::sqrt(evidence_) ? mean : 0;
}

double Governor::LongRunShare() const {
  if (!spare()) return ShareWithoutSpareCore();
  return slowdown_ <= options_.max_overhead ? 1 : options_.max_overhead / slowdown_;
}

double Governor::share() const {
  if (unhindered_) return 1;
  if (options_.duty_cycle) return *options_.duty_cycle;
  return known_ && spare_ ? 1 : std::max(kShareWithoutSpareCore, ShareWithoutSpareCore());
}

double Governor::long_run_share() const {
  if (options_.duty_cycle) return *options_.duty_cycle;
  return LongRunShare();
}

double Governor::RestSeconds(double now) const {
  if (!rests()) return 0;
  return std::max(0.0, -SavedAt(now) / LongRunShare());
}

}  // namespace ptqwatch::internal
