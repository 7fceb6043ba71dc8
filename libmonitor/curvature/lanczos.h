#ifndef PTQWATCH_CURVATURE_LANCZOS_H_
#define PTQWATCH_CURVATURE_LANCZOS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// ExtremeEigenpair by Lanczos with a basis of at most `max_basis` vectors (at least 1) and three
/// more vectors.
///
/// A search that has reached its residual takes up to two more products, until the bound is within
/// 10 % of the value (see EigenvalueBound). If the space becomes invariant before it holds the
/// whole spectrum, the search continues with a random vector until basis or products are used up. A
/// random start's relative error after k products is O((ln n / k)^2) (Kuczynski and Wozniakowski
/// 1992).
///
/// A search for a residual of 2 % or more takes rough products. If the operator asks for a check
/// (SymmetricOperator::rough_needs_check), an exact product with the vector found gives value and
/// residual, and the search goes on if the residual is too large. Rough products that are not
/// symmetric, or not those of the exact product, to 5 % are dropped: the search is repeated with
/// exact ones, with the same limit of products; `pair.products` counts both.
absl::StatusOr<EigenpairSearch> Lanczos(SymmetricOperator& hessian, const WarmStart& start,
                                        const EigenpairOptions& options,
                                        absl::Span<const Vector> deflated, int64_t max_basis,
                                        const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LANCZOS_H_
