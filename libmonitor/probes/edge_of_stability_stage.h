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

/// The smallest residual to which the edge of stability is searched. It bounds the relative error
/// of the ratio; if the eigenvalue is well separated, the error is about its square.
inline constexpr double kEdgeResidual = 0.05;

/// How near the optimizer is to the edge of stability, or why this is unknown.
struct EdgeOfStabilityResult {
  std::optional<OptimizerKind> optimizer = {};  ///< nullopt: the snapshot has no optimizer
  std::optional<double> ratio = {};
  std::optional<double> residual_ratio = {};
  std::string detail = {};  ///< why there is no ratio
  VectorMap vectors = {};   ///< for the next snapshot
};

/// The stage of the curvature probe that needs its Hessian operator: measures the edge of stability
/// from the top eigenpair of `hessian` and the snapshot's optimizer. `vectors` come from the
/// previous snapshot; `known` is the Krylov space of the search for `top`. Searches to a residual
/// of kEdgeResidual or more, because the ratio is compared with 1, not with other eigenvalues.
/// Returns Cancelled and DeadlineExceeded, which end the whole curvature measurement; any other
/// error becomes the detail.
absl::StatusOr<EdgeOfStabilityResult> MeasureEdgeOfStabilityStage(
    SymmetricOperator& hessian, const OptimizerState& optimizer, const HessianEigenpair& top,
    KrylovSpace known, const VectorMap& vectors, const EigenpairOptions& options,
    const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_EDGE_OF_STABILITY_STAGE_H_
