#ifndef PTQWATCH_CURVATURE_LANCZOS_H_
#define PTQWATCH_CURVATURE_LANCZOS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "curvature/hessian_operator.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

enum class SpectrumEnd { kTop, kBottom };

struct LanczosOptions {
  SpectrumEnd end = SpectrumEnd::kTop;
  double residual_ratio = 0.05;  ///< stops at ||Hv - lambda v|| <= this * |lambda|
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
/// `start`, with a share of a random vector so that a stale one cannot hide a larger eigenvalue,
/// or, where that is undefined, from a random one of `context.seeds`. After k products from a
/// random start the relative error is O((ln n / k)^2) (Kuczynski and Wozniakowski 1992). Memory:
/// max_basis + 2 vectors. Errors as HessianOperator::Apply.
absl::StatusOr<Eigenpair> ExtremeEigenpair(ExecutionContext& context, HessianOperator& hessian,
                                           const Vector& start, const LanczosOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LANCZOS_H_
