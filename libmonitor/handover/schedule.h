#ifndef PTQWATCH_HANDOVER_SCHEDULE_H_
#define PTQWATCH_HANDOVER_SCHEDULE_H_

#include <cstdint>

#include "ptqwatch/options.h"

namespace ptqwatch::internal {

enum class Due {
  kNo,
  kYes,
  kAdditional,  ///< only because the learning rate decays
};

/// Decides at which steps a snapshot is due. O(1) per step, no allocation. One caller at a time.
class Schedule {
 public:
  /// REQUIRES: valid options.
  explicit Schedule(const ScheduleOptions& options) : options_(options) {}

  /// `every` is the number of steps between snapshots set by a command, or 0 to follow the options.
  /// `now` is monotonic time in seconds, used only by a schedule by time. A step that goes
  /// backwards restarts the count from there; a changed `every` does not make a snapshot due at
  /// once. With `stretch` k, only every 2^k-th of the snapshots that would be due in a decay is
  /// due and, outside a decay, only if it is also a regular one; `decay_density` is then a power
  /// of two.
  Due Step(int64_t step, int64_t every, bool decaying, double now, int stretch = 0) noexcept;

  /// Whether a snapshot would be due at the newest step in a decay, without `stretch`.
  bool on_grid() const noexcept { return on_grid_; }

  /// Seconds from the newest step to the next one at which a snapshot is due, apart from additional
  /// ones.
  double SecondsToNext(double seconds_a_step) const noexcept;

 private:
  enum class Kind { kSteps, kLogSpaced, kSeconds };
  /// Number of snapshots due so far, without and with additional ones.
  struct Counts {
    int64_t due = -1;
    int64_t dense = -1;
  };
  Kind KindFor(int64_t every) const noexcept;
  Counts At(int64_t step, double now) const noexcept;

  const ScheduleOptions options_;
  bool started_ = false;
  int64_t every_ = 0;
  double start_ = 0;  // in seconds
  int64_t step_ = 0;
  double now_ = 0;
  Counts counts_;
  bool on_grid_ = false;
};

/// Seconds between due snapshots at this step, while the learning rate does not decay. `every` as
/// above. 0 if this depends on the time of a step, which is not known.
double SecondsBetween(const ScheduleOptions& options, int64_t every, int64_t step,
                      double seconds_a_step);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SCHEDULE_H_
