#include "curvature/loss_direction.h"

#include <limits>
#include <numeric>

namespace ptqwatch::internal {

absl::StatusOr<LossDirection> MeasureDirection(HessianOperator& hessian, const Vector& d,
                                               const Vector& v, const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  LossDirection direction;
  direction.squared_norm = space.Dot(d, d);
  if (direction.squared_norm == 0) {
    return absl::FailedPreconditionError("the direction is zero in the parameters in scope");
  }
  Vector product = space.Zero();
  if (absl::Status status = hessian.Apply(d, product, context); !status.ok()) return status;
  const auto sum = [](const std::vector<double>& terms) {
    return std::accumulate(terms.begin(), terms.end(), 0.0);
  };
  direction.gradient_by_part = space.DotByPart(hessian.gradient(), d);
  direction.curvature_by_part = space.DotByPart(d, product);
  for (double& term : direction.curvature_by_part) term /= 2;
  direction.gradient_term = sum(direction.gradient_by_part);
  direction.curvature_term = sum(direction.curvature_by_part);
  if (v.defined()) {
    const double along = space.Dot(v, d);
    direction.alignment = along * along / direction.squared_norm;
  }
  return direction;
}

absl::StatusOr<std::vector<double>> LossesAlong(LossSurface& surface, const Vector& d,
                                                absl::Span<const double> scales,
                                                const ExecutionContext& context) {
  std::vector<double> losses;
  absl::Status status;
  for (double scale : scales) {
    status = surface.MoveTo(&d, scale);
    if (!status.ok()) break;
    absl::StatusOr<double> loss = MeanLoss(surface, context);
    if (!loss.ok() && !absl::IsDataLoss(loss.status())) {
      status = loss.status();
      break;
    }
    losses.push_back(loss.ok() ? *loss : std::numeric_limits<double>::quiet_NaN());
  }
  // Also after a failure: the surface is handed back at W.
  if (absl::Status back = surface.MoveTo(nullptr, 0); status.ok()) status = back;
  if (!status.ok()) return status;
  return losses;
}

}  // namespace ptqwatch::internal
