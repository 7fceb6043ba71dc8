#ifndef PTQWATCH_CURVATURE_ORTHOGONALIZE_H_
#define PTQWATCH_CURVATURE_ORTHOGONALIZE_H_

#include <vector>

#include "absl/types/span.h"
#include "curvature/vector_space.h"

namespace ptqwatch::internal {

/// Removes the components along the orthonormal `basis` from `vector` and returns them. Two passes
/// of Gram-Schmidt keep float32 vectors orthogonal (Parlett, The Symmetric Eigenvalue Problem,
/// section 6.9).
std::vector<double> Orthogonalize(const VectorSpace& space, absl::Span<const Vector> basis,
                                  Vector& vector);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_ORTHOGONALIZE_H_
