#ifndef PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
#define PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_

#include "absl/status/status.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// A symmetric linear map of a VectorSpace into itself, known by its products alone. One thread at
/// a time.
class SymmetricOperator {
 public:
  virtual ~SymmetricOperator() = default;
  virtual const VectorSpace& space() const = 0;
  /// av = A v. DataLoss when the product is not finite, Cancelled or DeadlineExceeded from the
  /// context, and what else the operator says.
  virtual absl::Status Apply(const Vector& v, Vector& av, const ExecutionContext& context) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
