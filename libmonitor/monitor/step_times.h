#ifndef PTQWATCH_MONITOR_STEP_TIMES_H_
#define PTQWATCH_MONITOR_STEP_TIMES_H_

#include <atomic>
#include <cstdint>
#include <optional>

namespace ptqwatch::internal {

/// Times the steps of training while the monitor works and while it does not. Leaves out steps that
/// are partly one and partly the other, that take a snapshot, or that take several times as long as
/// steps did (an evaluation). One writer, OnStep; any thread reads.
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

/// How much longer steps took while the monitor worked.
struct StepComparison {
  double ratio = 0;  ///< of the mean times, less 1
  double stderr_ratio = 0;
  double lost_seconds = 0;  ///< of the steps compared
};

/// How much longer steps take while the monitor works, as far as comparisons show it. One thread at
/// a time.
class Slowdown {
 public:
  static constexpr double kFewest = 10;
  /// Compares the steps since the last comparison. Nothing while there are fewer than `kFewest` of
  /// either kind, which then count for the next time.
  std::optional<StepComparison> Compare(const StepTimes& times);
  /// Believes a comparison.
  void Add(const StepComparison& comparison);
  /// The mean of about the last ten added, weighted by their errors, while it is more than three of
  /// its own; else 0.
  double ratio() const { return ratio_; }

 private:
  StepTimes::Sums working_;
  StepTimes::Sums alone_;
  double evidence_ = 0;  // sum of the weights of comparisons, older ones forgotten
  double weighted_ = 0;  // ... and of their ratios
  double ratio_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_STEP_TIMES_H_
