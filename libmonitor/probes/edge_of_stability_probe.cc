#include "probes/edge_of_stability_probe.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "curvature/edge_of_stability.h"
#include "curvature/spectrum.h"
#include "probes/probe_status.h"

namespace ptqwatch::internal {
namespace {

constexpr char kVector[] = "preconditioned.0";

}  // namespace

absl::Status ProbeEdgeOfStability(SymmetricOperator& hessian, const OptimizerState& optimizer,
                                  const HessianEigenpair& top, const EigenpairOptions& options,
                                  const ProbeState& state, Report& report,
                                  CurvatureReport& curvature, ProbeState& next,
                                  const ExecutionContext& context) {
  curvature.edge_of_stability_detail = optimizer.problem;
  if (!optimizer.view) return absl::OkStatus();
  Stopwatch watch(context.clock);
  curvature.optimizer = optimizer.view->kind;
  absl::StatusOr<EdgeOfStability> edge = MeasureEdgeOfStability(
      hessian, *optimizer.view, top, WarmStartFrom(state.vectors, kVector), options, context);
  report.cost_seconds["curvature_edge_of_stability"] = watch.Lap();
  if (!edge.ok()) {
    const absl::Status& status = edge.status();
    // The next search starts from what this one did.
    KeepForNext(WarmStartFrom(state.vectors, kVector), kVector, next.vectors);
    if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) return status;
    curvature.edge_of_stability_detail = std::string(status.message());
    return absl::OkStatus();
  }
  if (!std::isfinite(edge->ratio)) {
    curvature.edge_of_stability_detail = "the ratio is not finite";
    return absl::OkStatus();
  }
  curvature.edge_of_stability_ratio = edge->ratio;
  curvature.edge_of_stability_residual_ratio = edge->residual_ratio;
  KeepForNext(edge->next, kVector, next.vectors);
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
