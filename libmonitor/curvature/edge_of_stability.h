#ifndef PTQWATCH_CURVATURE_EDGE_OF_STABILITY_H_
#define PTQWATCH_CURVATURE_EDGE_OF_STABILITY_H_

#include "absl/status/statusor.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

struct EdgeOfStability {
  /// 1 where the optimizer's steps on the loss's parabola are about to grow, below 1 where they
  /// shrink. Not positive where no direction curves up.
  double ratio = 0;
  double residual_ratio = 0;  ///< ||Mv - ratio v|| / |ratio|, M as below
  int products = 0;           ///< with the Hessian
  WarmStart next;             ///< for the next call; undefined where no search was needed
};

/// How near an optimizer is to the edge of stability on the parabola with the Hessian H, with its
/// rates, decays and second moments held fixed.
///
/// The ratio is the top eigenvalue of M = S (H + D) S. S and D are diagonal, because rates, decays
/// and second moments may differ from element to element:
///   SGD    S^2 = eta gain / 2, D = wd, with gain = (1 - dampening) / (1 + mu), with Nesterov
///          1 + mu (1 - dampening) / (1 + mu), and 1 where mu = 0
///   Adam   S^2 = eta' gain / 2p, D = wd, with gain = (1 - beta1) / (1 + beta1),
///          eta' = eta / (1 - beta1^t) and p = sqrt(v / (1 - beta2^t)) + epsilon
///   AdamW  S^2 = eta' gain / ((2 - eta wd) p), D = 0
/// With one rate for all this is eta (lambda + wd) / 2 for SGD without momentum (arXiv 2103.00065
/// has the thresholds with it), and eta lambda_max(P^-1 H) / 38 for AdamW with beta1 = 0.9 and no
/// decay (arXiv 2207.14484). docs/curvature.md has the derivation.
///
/// `top` is the top eigenpair of `hessian`: with one rate and decay for all, no further product is
/// needed. Otherwise ExtremeEigenpair searches M from `start`, which an earlier call left, and from
/// the top eigenvector of S A S, where A = Q M Q' of `known` is what the search for `top` found out
/// about the Hessian. That one costs no product, and replaces a random start.
/// Parameters with a rate of 0, or that the optimizer does not list, stand still. Where the
/// Hessian's space leaves trained parameters out, the ratio is a lower bound (M is then a principal
/// submatrix). A weight whose second moment is tiny relative to its curvature on this batch, having
/// had no gradient in training, dominates M, as it would dominate the next step. The error of
/// finite-difference products is a share of ||Hv||, which S amplifies.
///
/// Memory: ExtremeEigenpair's and 4 vectors; `known` is freed before the search. Errors: as
/// SymmetricOperator::Apply, and FailedPrecondition, naming parameter and value, where
///   - a rate or decay is negative or not finite, or no parameter has a rate above 0,
///   - a second moment is missing, negative or not finite,
///   - AdamW's decay alone is past the edge (eta wd >= 2),
///   - a parameter is updated twice a step.
absl::StatusOr<EdgeOfStability> MeasureEdgeOfStability(SymmetricOperator& hessian,
                                                       const OptimizerView& optimizer,
                                                       const HessianEigenpair& top,
                                                       KrylovSpace known, const WarmStart& start,
                                                       const EigenpairOptions& options,
                                                       const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EDGE_OF_STABILITY_H_
