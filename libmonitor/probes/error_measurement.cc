#include "probes/error_measurement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "probes/paired_loss.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

namespace {

// The points along the error, in multiples of it, at which the loss is evaluated. W_hat, at 1, is
// measured with its own weights, because W + d would round.
struct ErrorPoint {
  double scale = 1;
  bool watched_alone = false;  // not measured for other quantizers, to save time
};
constexpr ErrorPoint kErrorPoints[] = {{0.25, true}, {0.5}, {0.75, true}, {1}, {1.25, true}, {1.5}};

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

absl::StatusOr<LossAlong> ErrorMeasurement::Compare(double scale, const Units& full,
                                                    const ExecutionContext& context) {
  LossAlong along{.scale = scale};
  absl::StatusOr<Units> changed = Evaluate(context);
  if (absl::IsDataLoss(changed.status())) return along;
  if (!changed.ok()) return changed.status();
  if (changed->weights != full.weights) {
    return absl::FailedPreconditionError(
        "losses gave different weights (or numbers of sequences) for the same curvature batch");
  }
  along.delta_nats = changed->mean - full.mean;
  for (size_t unit = 0; unit < full.sums.size(); ++unit) changed->sums[unit] -= full.sums[unit];
  const double error = EstimateRatio(changed->sums, full.weights).stderr_value;
  if (std::isfinite(error)) along.delta_stderr_nats = error;
  return along;
}

absl::Status ErrorMeasurement::Measure(const ExecutionContext& context) {
  if (std::none_of(found_.begin(), found_.end(),
                   [](const Found& found) { return found.direction.has_value(); })) {
    return absl::OkStatus();
  }
  PTQWATCH_ASSIGN_OR_RETURN(const Units full, Evaluate(context));
  for (size_t i = 0; i < quantized_.size(); ++i) {
    Found& found = found_[i];
    if (!found.direction) continue;
    surface_.Replace(quantized_[i]);
    PTQWATCH_ASSIGN_OR_RETURN(const LossAlong whole, Compare(1, full, context));
    if (!whole.delta_nats) continue;
    const Vector d = surface_.Displacement(quantized_[i]);
    for (const auto& [scale, watched_alone] : kErrorPoints) {
      if (watched_alone && i != watched_) continue;
      if (scale == 1) {
        found.along.push_back(whole);
        continue;
      }
      PTQWATCH_RETURN_IF_ERROR(surface_.MoveTo(&d, scale));
      PTQWATCH_ASSIGN_OR_RETURN(found.along.emplace_back(), Compare(scale, full, context));
    }
  }
  return surface_.MoveTo(nullptr, 0);
}

std::vector<std::optional<ErrorCurvature>> ErrorMeasurement::Take() const {
  std::vector<std::optional<ErrorCurvature>> errors(found_.size());
  for (size_t i = 0; i < found_.size(); ++i) {
    const Found& found = found_[i];
    if (!found.direction || found.along.empty()) continue;
    const HessianDirection& direction = *found.direction;
    ErrorCurvature& error = errors[i].emplace();
    error.predicted_delta_nats = direction.Predict(1);
    error.gradient_term_nats = direction.gradient_term;
    error.curvature_term_nats = direction.curvature_term;
    error.curvature_along_error = direction.curvature;
    error.top_eigenvector_alignment = found.alignment;
    for (LossAlong along : found.along) {
      if (along.scale == 1) {
        error.delta_nats = *along.delta_nats;
        error.delta_stderr_nats = along.delta_stderr_nats;
      }
      along.predicted_delta_nats = direction.Predict(along.scale);
      error.loss_along.push_back(std::move(along));
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
