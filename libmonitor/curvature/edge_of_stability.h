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
  /// 1 where the optimizer's steps on the loss's parabola are on the verge of growing, below 1
  /// where they shrink. Not positive where no direction curves up.
  double ratio = 0;
  double residual_ratio = 0;  ///< ||Mv - ratio v|| / |ratio|, M as below
  int products = 0;           ///< with the Hessian
  /// Top eigenvector of M, of norm 1; undefined where it is that of the Hessian.
  WarmStart next;  ///< for the next call; undefined where no search was needed
};

/// How near an optimizer is to the edge of stability on the parabola with the Hessian H, with its
/// rates, decays and second moments frozen as they are.
///
/// A step is then a linear map of weights and momentum. Along an eigenvector of positive curvature
/// its root that leaves the unit circle first does so at z = -1 (the product of the two roots stays
/// below 1), where the weights of one sign follow those of the other. Put w = (-1)^t w into the
/// rule:
///   SGD    2 w = eta gain (H + wd) w, with gain = (1 - dampening) / (1 + mu), with Nesterov
///          1 + mu (1 - dampening) / (1 + mu), and 1 where mu = 0
///   Adam   2 w = eta' gain (H + wd) w / p, with gain = (1 - beta1) / (1 + beta1),
///          eta' = eta / (1 - beta1^t) and p = sqrt(v / (1 - beta2^t)) + epsilon
///   AdamW  (2 - eta wd) w = eta' gain H w / p
/// Rates, decays and p may differ from element to element, as diagonal matrices: the ratio is the
/// top eigenvalue of M = S (H + D) S, where S^2 is what stands before H over what stands on the
/// left, and D the decay of the first two. For one rate: eta (lambda + wd) / 2 for SGD without
/// momentum (arXiv 2103.00065 has the thresholds with it), and for AdamW with beta1 = 0.9 and no
/// decay eta lambda_max(P^-1 H) / 38 (arXiv 2207.14484). arXiv 2601.16979 writes AdamW's threshold
/// with decay as (2 + 2 beta1) / ((1 - beta1) eta) - wd; the decay of AdamW does not pass through
/// the momentum, so here it is (1 + beta1) (2 / eta - wd) / (1 - beta1), 19 times as much of wd for
/// beta1 = 0.9.
///
/// `top` is the top eigenpair of `hessian`: with it one rate and decay for all need no product
/// more. Else M's is found by ExtremeEigenpair from `start`, what an earlier call left.
/// Parameters of the Hessian's space that the view does not have, or with a rate of 0, stand still.
/// Where the space leaves trained parameters out, the ratio is a lower bound of the whole's (M is
/// then a principal submatrix). A weight whose second moment is tiny beside its curvature on
/// this batch (it saw no gradient in training) dominates M, as it would dominate the next step.
/// Finite-difference products are exact to their share of ||Hv||, which S amplifies.
///
/// FailedPrecondition, naming parameter and value, where a rate or decay is negative or not finite,
/// no parameter has a rate above 0, a second moment is missing, negative or not finite, AdamW's
/// decay alone is past the edge (eta wd >= 2), or a parameter is updated twice a step. Else errors
/// as SymmetricOperator::Apply. Memory: ExtremeEigenpair's and 3 vectors.
absl::StatusOr<EdgeOfStability> MeasureEdgeOfStability(SymmetricOperator& hessian,
                                                       const OptimizerView& optimizer,
                                                       const Eigenpair& top, const WarmStart& start,
                                                       const EigenpairOptions& options,
                                                       const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EDGE_OF_STABILITY_H_
