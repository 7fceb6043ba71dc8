#ifndef PTQWATCH_CURVATURE_PRECONDITIONED_OPERATOR_H_
#define PTQWATCH_CURVATURE_PRECONDITIONED_OPERATOR_H_

#include "curvature/symmetric_operator.h"

namespace ptqwatch::internal {

/// S H S + D with diagonal S and D: symmetric, with the eigenvalues of S^2 H if D is 0. Holds one
/// vector besides S and D; a product costs one product with H.
class PreconditionedOperator final : public SymmetricOperator {
 public:
  /// `hessian` must outlive the operator. `scale` and `shift` are the diagonals S and D, vectors of
  /// its space; an undefined `shift` is 0.
  PreconditionedOperator(SymmetricOperator* hessian, Vector scale, Vector shift);

  const VectorSpace& space() const override { return hessian_->space(); }
  absl::Status Apply(const Vector& v, Vector& av, const ExecutionContext& context) override;

 private:
  SymmetricOperator* hessian_;
  Vector scale_;
  Vector shift_;
  Vector scaled_;  // S v
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_PRECONDITIONED_OPERATOR_H_
