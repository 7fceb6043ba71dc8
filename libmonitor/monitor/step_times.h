#ifndef PTQWATCH_MONITOR_STEP_TIMES_H_
#define PTQWATCH_MONITOR_STEP_TIMES_H_

#include <atomic>
#include <cstdint>
#include <optional>

namespace ptqwatch::internal {

/// Times the steps of training while the monitor works and while it does not. What neither a whole
/// step long is, takes a snapshot, or takes several times as long as steps did (an evaluation) is
/// left out. One writer, OnStep; any thread reads.
class StepTimes {
 public:
  struct Sums {
    double steps = 0;
    double seconds = 0;
    double squares = 0;
  };

  /// At the end of each step, with the time in seconds. `working`: the monitor measures now.
  /// `copied`: a snapshot was taken since the last call.
  void OnStep(double now, bool working, bool copied) noexcept;

  Sums working() const noexcept { return working_.Read(); }
  Sums alone() const noexcept { return alone_.Read(); }

 private:
  struct Cell {
    std::atomic<double> steps{0};
    std::atomic<double> seconds{0};
    std::atomic<double> squares{0};
    void Add(double value) noexcept;
    Sums Read() const noexcept;
  };
  Cell working_;
  Cell alone_;
  bool started_ = false;
  double last_ = 0;
  bool last_working_ = false;
  double typical_ = 0;  // seconds; moves by a small share of each step
};

/// How much longer steps take while the monitor works.
struct Slowdown {
  double ratio = 0;  ///< of the mean times, less 1
  double stderr_ratio = 0;
  double lost_seconds = 0;  ///< of the steps compared
};

/// Compares the steps between two readings; the monitor thread's. Nothing while there are fewer
/// than `kFewest` of either kind, which then count for the next time.
class SlowdownEstimate {
 public:
  static constexpr double kFewest = 10;
  std::optional<Slowdown> Update(const StepTimes& times);

 private:
  StepTimes::Sums working_;
  StepTimes::Sums alone_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_STEP_TIMES_H_
