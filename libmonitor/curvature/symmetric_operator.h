#ifndef PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
#define PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_

#include "absl/status/status.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// A symmetric linear map of a VectorSpace into itself, known only by its products. One thread at a
/// time.
class SymmetricOperator {
 public:
  virtual ~SymmetricOperator() = default;
  virtual const VectorSpace& space() const = 0;
  /// av = A v. Errors: DataLoss when the product is not finite, Cancelled or DeadlineExceeded from
  /// the context, and those of the operator itself.
  virtual absl::Status Apply(const Vector& v, Vector& av, const ExecutionContext& context) = 0;
};

/// After this many zero products with random vectors an operator counts as zero. Measurements then
/// fail with ZeroOperatorError instead of returning 0.
inline constexpr int kMaxZeroProducts = 3;

/// FailedPrecondition: every product with the Hessian is zero.
absl::Status ZeroOperatorError();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
