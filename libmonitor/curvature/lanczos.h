#ifndef PTQWATCH_CURVATURE_LANCZOS_H_
#define PTQWATCH_CURVATURE_LANCZOS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "curvature/symmetric_operator.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

enum class SpectrumEnd { kTop, kBottom };

struct LanczosOptions {
  SpectrumEnd end = SpectrumEnd::kTop;
  double residual_ratio = 0.02;  ///< stops at ||Hv - lambda v|| <= this * |lambda|
  int max_products = 40;
  /// Vectors kept, each of the space's size; when they are used up the iteration starts again from
  /// the best vector so far. At least 2.
  int max_basis = 24;
};

struct Eigenpair {
  double value = 0;
  /// ||Hv - value v|| / |value|; 0 for a zero residual, also at value 0.
  double residual_ratio = 0;
  bool converged = false;
  int products = 0;
  Vector vector;  ///< of norm 1
};

/// The largest (or smallest, signed) eigenvalue of a symmetric H and its vector, by Lanczos with
/// full reorthogonalisation (Golub and Van Loan, Matrix Computations, section 10.3). Starts from
/// a random vector of `context.seeds`, or, where `start` is defined, from equal parts of both: such
/// a warm start is taken to have converged only when an eigenvalue a tenth beyond the one found
/// would have shown by then, at the latest after 6 products (5 where a residual of 5 % will do). An
/// invariant space is left with the next random vector until basis or products are used up. After k
/// products from a random start the relative error is O((ln n / k)^2) (Kuczynski and Wozniakowski
/// 1992). Memory: max_basis + 2 vectors. Errors as SymmetricOperator::Apply.
absl::StatusOr<Eigenpair> ExtremeEigenpair(ExecutionContext& context, SymmetricOperator& hessian,
                                           const Vector& start, const LanczosOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LANCZOS_H_
