#ifndef PTQWATCH_HANDOVER_STEP_TIMES_H_
#define PTQWATCH_HANDOVER_STEP_TIMES_H_

#include <atomic>
#include <optional>

namespace ptqwatch::internal {

/// Times training steps while the monitor works and while it does not. Leaves out steps during
/// which this changes, steps that take a snapshot, and steps several times as long as usual (an
/// evaluation). Only OnStep's thread writes; any thread reads.
class StepTimes {
 public:
  struct Sums {
    double steps = 0;
    double seconds = 0;
    double squares = 0;
  };

  /// Called at the end of each step with the time in seconds. `working`: the monitor is measuring.
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
  double ratio = 0;  ///< ratio of the mean times, minus 1
  double stderr_ratio = 0;
  double lost_seconds = 0;  ///< over the steps compared
};

/// Estimates how much longer steps take while the monitor works, from comparisons. Not thread-safe.
class Slowdown {
 public:
  static constexpr double kFewest = 10;
  /// Compares the steps since the last comparison. nullopt while there are fewer than `kFewest` of
  /// either kind; these count for the next comparison.
  std::optional<StepComparison> Compare(const StepTimes& times);
  /// Adds a comparison to the estimate.
  void Add(const StepComparison& comparison);
  /// The mean of about the last ten comparisons, weighted by their errors; 0 unless it exceeds
  /// three of its own standard errors.
  double ratio() const { return ratio_; }

 private:
  StepTimes::Sums working_;
  StepTimes::Sums alone_;
  double evidence_ = 0;  // sum of the weights, with older ones decayed
  double weighted_ = 0;  // the same sum of weighted ratios
  double ratio_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_STEP_TIMES_H_
