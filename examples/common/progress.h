#ifndef PTQWATCH_COMMON_PROGRESS_H_
#define PTQWATCH_COMMON_PROGRESS_H_

#include <chrono>
#include <cstdint>

namespace ptqwatch::examples {

/// Shows how far a training loop is and when it will be done: ten times a second on a terminal,
/// else a line every tenth of the run. Not thread-safe. An update costs well under a microsecond
/// where nothing is shown.
class Progress {
 public:
  /// Starts the clock.
  explicit Progress(int64_t steps);
  /// Takes the progress line away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After each step: steps done, the rate and the loss of the last one.
  void Update(int64_t step, double learning_rate, double loss);

 private:
  using Clock = std::chrono::steady_clock;
  const int64_t steps_;
  const Clock::time_point start_;
  Clock::time_point next_show_;
  int64_t tenths_ = 0;
  double smooth_loss_ = 0;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_PROGRESS_H_
