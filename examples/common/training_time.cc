#include "training_time.h"

#include <numeric>

namespace ptqwatch::examples {

void TrainingTime::AfterStep() {
  if (monitor_ == nullptr) return;
  const auto snapshots = monitor_->status().snapshots;
  const int64_t due = std::accumulate(snapshots.begin(), snapshots.end(), int64_t{0});
  if (due == due_) return;
  due_ = due;
  const auto begin = Clock::now();
  stop_.Finish(*monitor_);
  waited_ += Clock::now() - begin;
}

double TrainingTime::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_ - waited_).count();
}

}  // namespace ptqwatch::examples
