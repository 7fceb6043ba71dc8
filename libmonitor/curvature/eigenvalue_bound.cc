#include "curvature/eigenvalue_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ptqwatch::internal {
namespace {

// Relative to the size of the eigenvalues.
constexpr double kBoundPrecision = 1e-4;

bool IsPossible(absl::Span<const double> diagonal, absl::Span<const double> remainders, double x,
                double share) {
  double before = 0;
  double newest = 1;
  double sum = 1;
  for (size_t j = 0; j < diagonal.size() && sum * share <= 1; ++j) {
    const double along_before = j == 0 ? 0 : remainders[j - 1] * before;
    before = newest;
    newest = ((x - diagonal[j]) * newest - along_before) / remainders[j];
    sum += newest * newest;
  }
  return sum * share <= 1;
}

}  // namespace

double EigenvalueBound(absl::Span<const double> diagonal, absl::Span<const double> remainders,
                       double top, double share) {
  if (!(share > 0)) return std::numeric_limits<double>::infinity();
  const double size = std::max(std::abs(top), remainders.front());
  double low = 0;
  double high = size;
  while (IsPossible(diagonal, remainders, top + high, share)) {
    low = high;
    high *= 2;
  }
  while (high - low > kBoundPrecision * size) {
    const double middle = (low + high) / 2;
    (IsPossible(diagonal, remainders, top + middle, share) ? low : high) = middle;
  }
  return top + high;
}

}  // namespace ptqwatch::internal
