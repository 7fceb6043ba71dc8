#include "curvature/orthogonalize.h"

namespace ptqwatch::internal {

std::vector<double> Orthogonalize(const VectorSpace& space, absl::Span<const Vector> basis,
                                  Vector& vector) {
  std::vector<double> coefficients(basis.size());
  for (int pass = 0; pass < 2; ++pass) {
    const std::vector<double> removed = space.RemoveComponents(basis, vector);
    for (size_t i = 0; i < basis.size(); ++i) coefficients[i] += removed[i];
  }
  return coefficients;
}

}  // namespace ptqwatch::internal
