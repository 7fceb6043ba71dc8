#ifndef PTQWATCH_ANALYSIS_BASELINE_H_
#define PTQWATCH_ANALYSIS_BASELINE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// One snapshot of a series: the logarithm of its step and of its value.
struct SeriesPoint {
  double x = 0;
  double y = 0;
};

struct SeriesPrior {
  double slope = 0.25;        ///< of y over x: quantization error grows as a power of the tokens
  double slope_sigma = 0.2;   ///< (arXiv 2411.04330 finds 0.3 to 0.6)
  double scatter = 0.1;       ///< standard deviation between checkpoints ...
  double scatter_weight = 6;  ///< ... worth this many snapshots
};

/// y = level + slope (x - center) with independent scatter, fitted to a plateau. A Bayesian linear
/// regression with a normal prior on the slope and a flat prior on the level; outliers get less
/// weight (Huber, k = 2).
class Baseline {
 public:
  /// nullopt with fewer than two points.
  static std::optional<Baseline> Fit(absl::Span<const SeriesPoint> points,
                                     const SeriesPrior& prior);

  double At(double x) const { return level_ + slope_ * (x - center_); }
  double scatter() const { return scatter_; }
  double slope() const { return slope_; }
  double slope_stderr() const;

  /// The size of a change with a known course, given per point: y = baseline + size * course.
  struct Change {
    double size = 0;
    double stderr_value = 0;  ///< with the scatter of the points and the error of the baseline
    /// size / stderr_value on the scale of a standard normal. The quotient has Student's
    /// distribution because the scatter is estimated.
    double sigmas = 0;
  };
  /// The contribution of snapshots to the estimate of a change, with x relative to the center of
  /// the baseline, course c and residual r. Contributions add up, and can be taken out again.
  struct Sums {
    double snapshots = 0;
    double x = 0, xx = 0, c = 0, cx = 0, cc = 0, r = 0, rx = 0, cr = 0;
    void Add(const Sums& other, double sign = 1);
  };
  /// One snapshot's contribution. Its residual is clipped at `most_sigmas` times its expected size,
  /// so that one wild snapshot does not decide the result.
  Sums SumsOf(const SeriesPoint& point, double course, double most_sigmas) const;
  /// Estimates by generalized least squares.
  Change Estimate(const Sums& sums) const;
  Change Estimate(absl::Span<const SeriesPoint> points, absl::Span<const double> course) const;

 private:
  double level_ = 0;
  double slope_ = 0;
  double center_ = 0;
  double scatter_ = 0;
  double freedom_ = 0;  ///< degrees of freedom of the scatter, including the prior's
  /// Covariance of level and slope.
  std::array<std::array<double, 2>, 2> covariance_ = {};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_BASELINE_H_
