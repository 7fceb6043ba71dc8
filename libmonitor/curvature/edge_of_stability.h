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
  /// At 1, the optimizer's steps on the loss's parabola are about to grow; below 1 they shrink. Not
  /// positive if the loss curves up in no direction.
  double ratio = 0;
  double residual_ratio = 0;  ///< ||Mv - ratio v|| / |ratio|, M as below
  int products = 0;           ///< with the Hessian
  WarmStart next;             ///< for the next call; undefined if no search was needed
};

/// Measures how near an optimizer is to the edge of stability on the parabola with the Hessian H,
/// with its rates, decays and second moments held fixed.
///
/// The ratio is the top eigenvalue of M = S (H + D) S; docs/curvature.md has the diagonal matrices
/// S and D of each optimizer.
///
/// `top` is the top eigenpair of `hessian`. With a single rate and decay, no further product is
/// needed. Otherwise ExtremeEigenpair searches M from `start`, left by an earlier call, and from
/// the top eigenvector of S A S, where A = Q M Q' of `known` comes from the search for `top`. The
/// latter costs no product and replaces a random start.
///
/// Parameters with a rate of 0, or missing from the optimizer's list, do not move. If the Hessian's
/// space lacks trained parameters, the ratio is a lower bound (M is then a principal submatrix). A
/// weight without gradient in training may have a second moment that is tiny relative to its
/// curvature on this batch. It then dominates M, as it would dominate the next step. The error of
/// finite-difference products is a share of ||Hv||, which S amplifies.
///
/// Memory: ExtremeEigenpair's and 4 vectors; `known` is freed before the search. Errors: as
/// SymmetricOperator::Apply, and FailedPrecondition, naming parameter and value, if
///   - a rate or decay is negative or not finite, or no parameter has a rate above 0,
///   - a second moment is missing, negative or not finite,
///   - AdamW's decay alone is past the edge (eta wd >= 2),
///   - a parameter is updated twice per step.
absl::StatusOr<EdgeOfStability> MeasureEdgeOfStability(SymmetricOperator& hessian,
                                                       const OptimizerView& optimizer,
                                                       const HessianEigenpair& top,
                                                       KrylovSpace known, const WarmStart& start,
                                                       const EigenpairOptions& options,
                                                       const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_EDGE_OF_STABILITY_H_
