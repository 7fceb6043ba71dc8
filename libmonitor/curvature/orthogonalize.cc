#include "curvature/orthogonalize.h"

namespace ptqwatch::internal {

std::vector<double> Orthogonalize(const VectorSpace& space, absl::Span<const Vector> basis,
                                  Vector& vector) {
  std::vector<double> coefficients(basis.size());
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < basis.size(); ++i) {
      const double share = space.Dot(basis[i], vector);
      space.Axpy(-share, basis[i], vector);
      coefficients[i] += share;
    }
  }
  return coefficients;
}

}  // namespace ptqwatch::internal
