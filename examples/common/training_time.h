#ifndef PTQWATCH_COMMON_TRAINING_TIME_H_
#define PTQWATCH_COMMON_TRAINING_TIME_H_

#include <chrono>
#include <cstdint>

#include "ptqwatch/monitor.h"
#include "stop_signal.h"

namespace ptqwatch::examples {

/// Measures the time of a training loop. With --wait, lets the loop wait for each snapshot that is
/// due, and does not count that.
class TrainingTime {
 public:
  /// Begins to measure. `monitor` may be null; it and `stop` must outlive this object.
  TrainingTime(Monitor* monitor, bool wait, const StopSignal& stop)
      : monitor_(wait ? monitor : nullptr), stop_(stop) {}

  /// Call after Monitor::OnStep.
  void AfterStep();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  Monitor* const monitor_;  // null: never waits
  const StopSignal& stop_;
  const Clock::time_point begin_ = Clock::now();
  Clock::duration waited_{};
  int64_t counted_ = 0;  // snapshots, taken and skipped
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TRAINING_TIME_H_
