#include "training_time.h"

#include <numeric>

namespace ptqwatch::examples {
namespace {

int64_t Snapshots(const Monitor& monitor) {
  const auto snapshots = monitor.status().snapshots;
  return std::accumulate(snapshots.begin(), snapshots.end(), int64_t{0});
}

}  // namespace

void TrainingTime::AfterStep() {
  if (monitor_ == nullptr || Snapshots(*monitor_) == counted_) return;
  const auto begin = Clock::now();
  stop_.Finish(*monitor_);
  waited_ += Clock::now() - begin;
  // Finish counts what it takes itself: the last step if the due snapshot was skipped, and its
  // second measurement.
  counted_ = Snapshots(*monitor_);
}

double TrainingTime::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_ - waited_).count();
}

}  // namespace ptqwatch::examples
