#include "curvature/loss_direction.h"

#include <limits>
#include <numeric>

#include "base/status_macros.h"

namespace ptqwatch::internal {

absl::StatusOr<HessianDirection> MeasureDirection(HessianOperator& hessian, const Vector& d,
                                                  const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  HessianDirection direction;
  direction.squared_norm = space.Dot(d, d);
  if (direction.squared_norm == 0) {
    return absl::FailedPreconditionError("the direction is zero in the parameters in scope");
  }
  Vector product = space.Zero();
  PTQWATCH_RETURN_IF_ERROR(hessian.Apply(d, product, context));
  const auto sum = [](const std::vector<double>& terms) {
    return std::accumulate(terms.begin(), terms.end(), 0.0);
  };
  direction.gradient_by_parameter = space.DotByPiece(hessian.gradient(), d);
  direction.curvature_by_parameter = space.DotByPiece(d, product);
  for (double& term : direction.curvature_by_parameter) term /= 2;
  direction.gradient_term = sum(direction.gradient_by_parameter);
  direction.curvature_term = sum(direction.curvature_by_parameter);
  direction.curvature = 2 * direction.curvature_term / direction.squared_norm;
  return direction;
}

double Alignment(const VectorSpace& space, const Vector& v, const Vector& d) {
  const double along = space.Dot(v, d);
  return along * along / space.Dot(d, d);
}

absl::StatusOr<std::vector<double>> LossesAlong(LossSurface& surface, const Vector& d,
                                                absl::Span<const double> scales,
                                                const ExecutionContext& context) {
  std::vector<double> losses;
  absl::Status status;
  for (double scale : scales) {
    status = surface.MoveTo(&d, scale);
    if (!status.ok()) break;
    const absl::StatusOr<double> loss = MeanLoss(surface, context);
    if (!loss.ok() && !absl::IsDataLoss(loss.status())) {
      status = loss.status();
      break;
    }
    losses.push_back(loss.ok() ? *loss : std::numeric_limits<double>::quiet_NaN());
  }
  // Returns the surface to W, after a failure too.
  status.Update(surface.MoveTo(nullptr, 0));
  PTQWATCH_RETURN_IF_ERROR(status);
  return losses;
}

}  // namespace ptqwatch::internal
