#ifndef PTQWATCH_PROBES_EDGE_OF_STABILITY_PROBE_H_
#define PTQWATCH_PROBES_EDGE_OF_STABILITY_PROBE_H_

#include "absl/status/status.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/optimizer_staging.h"

namespace ptqwatch::internal {

/// Fills the edge of stability of `curvature` and its duration in `report`, from the top eigenpair
/// of `hessian` and the snapshot's optimizer; starts from and leaves the vector "preconditioned.0".
/// What stands in the way is said in the report. Returns ok but where the whole curvature cannot go
/// on: Cancelled, DeadlineExceeded.
absl::Status ProbeEdgeOfStability(SymmetricOperator& hessian, const OptimizerState& optimizer,
                                  const HessianEigenpair& top, const EigenpairOptions& options,
                                  const ProbeState& state, Report& report,
                                  CurvatureReport& curvature, ProbeState& next,
                                  const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_EDGE_OF_STABILITY_PROBE_H_
