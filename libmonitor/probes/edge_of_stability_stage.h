#ifndef PTQWATCH_PROBES_EDGE_OF_STABILITY_STAGE_H_
#define PTQWATCH_PROBES_EDGE_OF_STABILITY_STAGE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "curvature/eigenpair.h"
#include "curvature/spectrum.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/snapshot.h"

namespace ptqwatch::internal {

/// The least residual to which the edge of stability is searched. The ratio's error is at most that
/// share of it, and where its eigenvalue stands apart about the square of that.
inline constexpr double kEdgeResidual = 0.05;

/// How near the optimizer is to the edge of stability, or why that is not known.
struct EdgeOfStabilityResult {
  std::optional<OptimizerKind> optimizer = {};  ///< nothing: the snapshot has none
  std::optional<double> ratio = {};
  std::optional<double> residual_ratio = {};
  std::string detail = {};  ///< why there is no ratio
  VectorMap vectors = {};   ///< for the next snapshot
};

/// The stage of the curvature probe that needs its Hessian operator: measures the edge of stability
/// from the top eigenpair of `hessian` and the snapshot's optimizer. `vectors` are those of the
/// previous snapshot; `known` is the Krylov space of the search for `top`. The ratio is searched to
/// a residual of kEdgeResidual or more: it is compared with 1, not with other eigenvalues. Fails
/// only where the whole curvature cannot go on: Cancelled and DeadlineExceeded; everything else
/// becomes the detail.
absl::StatusOr<EdgeOfStabilityResult> MeasureEdgeOfStabilityStage(
    SymmetricOperator& hessian, const OptimizerState& optimizer, const HessianEigenpair& top,
    KrylovSpace known, const VectorMap& vectors, const EigenpairOptions& options,
    const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_EDGE_OF_STABILITY_STAGE_H_
