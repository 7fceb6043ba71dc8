#ifndef PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
#define PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_

#include <vector>

#include "absl/status/status.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// A symmetric linear map of a VectorSpace into itself, known by its products. Not thread-safe.
class SymmetricOperator {
 public:
  virtual ~SymmetricOperator() = default;
  virtual const VectorSpace& space() const = 0;
  /// av = A v. Errors: DataLoss if the product is not finite, Cancelled or DeadlineExceeded from
  /// the context, and those of the operator itself.
  virtual absl::Status Apply(const Vector& v, Vector& av, const ExecutionContext& context) = 0;
  /// Same, but may be off by up to 1 % of ||A v|| if that is cheaper.
  virtual absl::Status ApplyRoughly(const Vector& v, Vector& av, const ExecutionContext& context) {
    return Apply(v, av, context);
  }
  /// Do rough products come from another method, so that Apply must confirm what they find?
  virtual bool rough_needs_check() const { return false; }
  /// If A is a sum of terms, one per batch: each term's share of the data. The shares sum up to 1.
  /// Empty if A is not such a sum.
  virtual std::vector<double> shares() const { return {}; }
  /// Same as Apply, and also returns v'A_b v for each of those terms.
  virtual absl::Status ApplyByShare(const Vector& v, Vector& av, std::vector<double>& /*along*/,
                                    const ExecutionContext& context) {
    return Apply(v, av, context);
  }
};

/// After this many zero products with random vectors an operator counts as zero. Measurements then
/// fail with ZeroOperatorError instead of returning 0.
inline constexpr int kMaxZeroProducts = 3;

/// FailedPrecondition: every product with the Hessian is zero.
absl::Status ZeroOperatorError();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_SYMMETRIC_OPERATOR_H_
