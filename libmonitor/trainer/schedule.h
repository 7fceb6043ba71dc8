#ifndef PTQWATCH_TRAINER_SCHEDULE_H_
#define PTQWATCH_TRAINER_SCHEDULE_H_

#include <cstdint>

namespace ptqwatch::internal {

/// Decides at which steps a snapshot is due: at the multiples of `every`, and at the first step
/// after a multiple that was skipped. One caller at a time.
class Schedule {
 public:
  /// REQUIRES: every > 0. A step that goes backwards restarts the count from there.
  bool Due(int64_t step, int64_t every) noexcept {
    const int64_t period = step / every;
    const bool due =
        started_ && every == every_ && step > last_ ? period > period_ : step % every == 0;
    started_ = true;
    every_ = every;
    last_ = step;
    period_ = period;
    return due;
  }

 private:
  bool started_ = false;
  int64_t every_ = 0;
  int64_t last_ = 0;
  int64_t period_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAINER_SCHEDULE_H_
