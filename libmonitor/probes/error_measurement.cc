#include "probes/error_measurement.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "probes/paired_loss.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

namespace {

// The points along the error, in multiples of it, at which the loss is evaluated beside W_hat.
// W_hat is measured with its own weights, because W + d would round.
constexpr double kScales[] = {0.5, 1.5};

}  // namespace

absl::Status ErrorMeasurement::Predict(HessianOperator& hessian, const Vector& top,
                                       const ExecutionContext& context) {
  for (size_t i = 0; i < quantized_.size(); ++i) {
    if (quantized_[i].empty()) continue;
    const Vector d = surface_.Displacement(quantized_[i]);
    if (surface_.space().Norm(d) == 0) continue;  // outside the scope
    absl::StatusOr<HessianDirection> direction = MeasureDirection(hessian, d, context);
    if (absl::IsDataLoss(direction.status())) continue;  // skips only this quantizer
    if (!direction.ok()) return direction.status();
    found_[i].direction = *std::move(direction);
    if (top.defined()) found_[i].alignment = Alignment(surface_.space(), top, d);
  }
  return absl::OkStatus();
}

absl::StatusOr<ErrorMeasurement::Units> ErrorMeasurement::Evaluate(
    const ExecutionContext& context) {
  Units units;
  for (size_t i = 0; i < surface_.batches(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_ASSIGN_OR_RETURN(const UnitLosses losses, surface_.LossesByUnit(i));
    units.sums.insert(units.sums.end(), losses.sum.begin(), losses.sum.end());
    units.weights.insert(units.weights.end(), losses.weight.begin(), losses.weight.end());
  }
  units.mean = EstimateRatio(units.sums, units.weights).value;
  if (!std::isfinite(units.mean)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  return units;
}

absl::Status ErrorMeasurement::Measure(const ExecutionContext& context) {
  PTQWATCH_ASSIGN_OR_RETURN(const Units full, Evaluate(context));
  const double base = full.mean;
  for (size_t i = 0; i < quantized_.size(); ++i) {
    Found& found = found_[i];
    if (!found.direction) continue;
    surface_.Replace(quantized_[i]);
    absl::StatusOr<Units> changed = Evaluate(context);
    if (absl::IsDataLoss(changed.status())) continue;
    if (!changed.ok()) return changed.status();
    found.delta = changed->mean - base;
    for (size_t unit = 0; unit < full.sums.size(); ++unit) changed->sums[unit] -= full.sums[unit];
    found.delta_stderr = EstimateRatio(changed->sums, full.weights).stderr_value;
    PTQWATCH_ASSIGN_OR_RETURN(
        const std::vector<double> along,
        LossesAlong(surface_, surface_.Displacement(quantized_[i]), kScales, context));
    for (double value : along) found.along.push_back(value - base);
  }
  return surface_.MoveTo(nullptr, 0);
}

std::vector<std::optional<ErrorCurvature>> ErrorMeasurement::Take() const {
  std::vector<std::optional<ErrorCurvature>> errors(found_.size());
  for (size_t i = 0; i < found_.size(); ++i) {
    const Found& found = found_[i];
    if (!found.direction || !found.delta) continue;
    const HessianDirection& direction = *found.direction;
    ErrorCurvature& error = errors[i].emplace();
    error.predicted_delta_nats = direction.Predict(1);
    error.delta_nats = *found.delta;
    if (std::isfinite(found.delta_stderr)) error.delta_stderr_nats = found.delta_stderr;
    error.gradient_term_nats = direction.gradient_term;
    error.curvature_term_nats = direction.curvature_term;
    error.curvature_along_error = direction.curvature;
    error.top_eigenvector_alignment = found.alignment;
    for (size_t k = 0; k < std::size(kScales); ++k) {
      LossAlong& along = error.loss_along.emplace_back();
      along.scale = kScales[k];
      if (std::isfinite(found.along[k])) along.delta_nats = found.along[k];
      along.predicted_delta_nats = direction.Predict(kScales[k]);
    }
    const std::vector<VectorSpace::Part>& pieces = surface_.space().pieces();
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      error.layers.push_back({pieces[piece].name, direction.gradient_by_parameter[piece],
                              direction.curvature_by_parameter[piece]});
    }
  }
  return errors;
}

}  // namespace ptqwatch::internal
