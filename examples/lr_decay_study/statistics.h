#ifndef PTQWATCH_LR_DECAY_STUDY_STATISTICS_H_
#define PTQWATCH_LR_DECAY_STUDY_STATISTICS_H_

#include <span>

namespace ptqwatch::examples {

/// NaN for no values.
double Mean(std::span<const double> values);
/// With n - 1 in the denominator; NaN for fewer than two values.
double StandardDeviation(std::span<const double> values);

/// Spearman's rank correlation; values that are equal share the mean of their ranks. NaN for fewer
/// than two pairs and where one side is constant. REQUIRES: spans of one length, without NaN.
double Spearman(std::span<const double> x, std::span<const double> y);

/// The 97.5 % quantile of Student's t. REQUIRES: at least one degree of freedom.
double StudentQuantile(long degrees);

/// A least-squares line y = intercept + slope x.
struct LineFit {
  double slope = 0;
  /// Of the slope's 95 % interval, by Student's t with n - 2 degrees of freedom: half its width.
  double half_width = 0;
};

/// NaN for fewer than three points. REQUIRES: spans of one length, x not constant.
LineFit FitLine(std::span<const double> x, std::span<const double> y);

/// Whether each value is larger (smaller) than the one before. NaN is neither.
bool IsRising(std::span<const double> values);
bool IsFalling(std::span<const double> values);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_LR_DECAY_STUDY_STATISTICS_H_
