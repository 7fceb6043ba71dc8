#ifndef PTQWATCH_CURVATURE_EIGENVALUE_BOUND_H_
#define PTQWATCH_CURVATURE_EIGENVALUE_BOUND_H_

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// The largest eigenvalue that a symmetric H can have after Lanczos, if its eigenvector has at
/// least `share` of the start's squared norm.
///
/// Lanczos from the unit vector s gives `diagonal`, `remainders` (of equal size) and the
/// polynomials q_0 = 1, r_j q_j(x) = (x - d_j) q_{j-1}(x) - r_{j-1} q_{j-2}(x), for which the
/// vectors q_j(H) s are orthonormal. An eigenvector v of the eigenvalue x has the component q_j(x)
/// v's along each, so Bessel's inequality gives (v's)^2 sum_j q_j(x)^2 <= 1. Beyond `top`, the
/// largest Ritz value, the sum grows with x: the bound solves sum_j q_j(x)^2 = 1 / share. No
/// sharper one follows from the same numbers (the sum is the inverse of the Christoffel function).
/// Van Dorsselaer, Hochstenbach and van der Vorst (2000) bound x by the last term alone.
///
/// Infinity if `share` is 0. REQUIRES: no remainder is 0.
double EigenvalueBound(absl::Span<const double> diagonal, absl::Span<const double> remainders,
                       double top, double share);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EIGENVALUE_BOUND_H_
