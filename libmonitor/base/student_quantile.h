#ifndef PTQWATCH_BASE_STUDENT_QUANTILE_H_
#define PTQWATCH_BASE_STUDENT_QUANTILE_H_

namespace ptqwatch::internal {

/// The 97.5 % quantile of the normal distribution.
inline constexpr double kNormalQuantile = 1.959964;

/// The 97.5 % quantile of Student's t; accurate to 0.2 % from 6 degrees of freedom on.
double StudentQuantile(int degrees_of_freedom);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_STUDENT_QUANTILE_H_
