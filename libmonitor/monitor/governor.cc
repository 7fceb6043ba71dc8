#include "monitor/governor.h"

#include <algorithm>

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
constexpr double kShareWithoutSpareCore = 0.25;
constexpr double kMostSavedSeconds = 30;

}  // namespace

void Governor::Read(const std::optional<CpuReading>& reading) {
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
  if (spare_) {
    spare_ = cores >= kNoSpareCores && waiting <= kMuchWaiting;
  } else {
    spare_ = cores >= kSpareCores && waiting <= kLittleWaiting;
  }
  known_ = true;
  last_ = reading;
}

void Governor::Worked(double seconds, double now) {
  if (!rests()) return;
  spent_ = std::max(spent_, LongRunShare() * (now - start_) - kMostSavedSeconds) + seconds;
}

double Governor::LongRunShare() const { return std::min(1.0, 2 * options_.max_overhead); }

double Governor::share() const {
  if (unhindered_) return 1;
  if (options_.duty_cycle) return *options_.duty_cycle;
  return known_ && spare_ ? 1 : std::max(kShareWithoutSpareCore, LongRunShare());
}

double Governor::long_run_share() const {
  if (options_.duty_cycle) return *options_.duty_cycle;
  return spare() ? 1 : LongRunShare();
}

double Governor::RestSeconds(double now) const {
  if (!rests()) return 0;
  return std::max(0.0, spent_ / LongRunShare() - (now - start_));
}

}  // namespace ptqwatch::internal
