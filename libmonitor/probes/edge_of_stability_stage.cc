#include "probes/edge_of_stability_stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "curvature/edge_of_stability.h"

namespace ptqwatch::internal {
namespace {

constexpr char kVector[] = "preconditioned.0";

}  // namespace

absl::StatusOr<EdgeOfStabilityResult> MeasureEdgeOfStabilityStage(
    SymmetricOperator& hessian, const OptimizerState& optimizer, const HessianEigenpair& top,
    KrylovSpace known, const VectorMap& vectors, const EigenpairOptions& options,
    const ExecutionContext& context) {
  EdgeOfStabilityResult result;
  result.detail = optimizer.problem;
  if (!optimizer.view) return result;
  result.optimizer = optimizer.view->kind;
  const WarmStart start = WarmStartFrom(vectors, kVector);
  EigenpairOptions search = options;
  search.residual_ratio = std::max(kEdgeResidual, search.residual_ratio);
  const absl::StatusOr<EdgeOfStability> edge = MeasureEdgeOfStability(
      hessian, *optimizer.view, top, std::move(known), start, search, context);
  if (absl::IsCancelled(edge.status()) || absl::IsDeadlineExceeded(edge.status())) {
    return edge.status();
  }
  if (!edge.ok()) {
    KeepForNext(start, kVector, result.vectors);
    result.detail = StrCat(edge.status());
    return result;
  }
  if (!std::isfinite(edge->ratio)) {
    result.detail = "the ratio is not finite";
    return result;
  }
  result.ratio = edge->ratio;
  result.residual_ratio = edge->residual_ratio;
  KeepForNext(edge->next, kVector, result.vectors);
  return result;
}

}  // namespace ptqwatch::internal
