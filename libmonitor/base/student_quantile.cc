#include "base/student_quantile.h"

namespace ptqwatch::internal {

double StudentQuantile(int degrees_of_freedom) {
  // Cornish-Fisher (Abramowitz and Stegun 26.7.5).
  const double n = degrees_of_freedom;
  const double z = kNormalQuantile;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

}  // namespace ptqwatch::internal
