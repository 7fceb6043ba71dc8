#ifndef PTQWATCH_TRAINER_SCHEDULE_H_
#define PTQWATCH_TRAINER_SCHEDULE_H_

#include <cstdint>

namespace ptqwatch::internal {

/// Says at which steps a snapshot is due: at the multiples of `every`, or at the first step after
/// one that was jumped over. One caller at a time.
class Schedule {
 public:
  /// REQUIRES: every > 0. A step that goes backwards starts the count anew from there.
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
