#ifndef PTQWATCH_TOOLS_TRAJECTORY_PROGRESS_H_
#define PTQWATCH_TOOLS_TRAJECTORY_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "ptqwatch/execution_context.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::tools {

/// Lines on standard error: one when the measurement of a checkpoint begins, and one every ten
/// seconds while it lasts. Not thread-safe.
class Progress {
 public:
  /// `seconds`: predicted for a checkpoint, until the first has been measured.
  Progress(double seconds, Clock* clock) : predicted_(seconds), clock_(clock) {}

  void Begin(const internal::TrajectoryUnit& unit, int64_t number, int64_t of);
  void Note(const internal::MeterProgress& now);
  void End();

 private:
  std::string Left() const;

  const double predicted_;
  Clock* const clock_;
  std::string head_;  // "checkpoint 3 of 12"
  bool measuring_ = false;
  int64_t left_ = 0;  // checkpoints, with the present one
  std::chrono::nanoseconds begun_{0};
  std::chrono::nanoseconds shown_{0};
  double measured_seconds_ = 0;
  int64_t measured_ = 0;
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_PROGRESS_H_
