#include "probes/error_curvature.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace ptqwatch::internal {
namespace {

// Where the loss along the error is evaluated, as multiples of it, beside W_hat: that one is
// measured with its own weights instead of W + d, which rounds.
constexpr double kScales[] = {0.5, 1.5};

}  // namespace

ErrorCurvature::ErrorCurvature(ReplicaSurface& surface,
                               const std::vector<std::vector<Replica::Override>>& quantized)
    : surface_(surface), quantized_(quantized), results_(quantized.size()) {}

absl::Status ErrorCurvature::Predict(HessianOperator& hessian, const Vector& top,
                                     const ExecutionContext& context) {
  for (size_t i = 0; i < quantized_.size(); ++i) {
    if (quantized_[i].empty()) continue;
    const Vector d = surface_.Displacement(quantized_[i]);
    if (surface_.space().Norm(d) == 0) continue;  // nothing of it is in the scope
    absl::StatusOr<HessianDirection> direction = MeasureDirection(hessian, d, context);
    if (absl::IsDataLoss(direction.status())) continue;  // this quantizer's alone
    if (!direction.ok()) return direction.status();
    results_[i].direction = *std::move(direction);
    if (top.defined()) results_[i].alignment = Alignment(surface_.space(), top, d);
  }
  return absl::OkStatus();
}

absl::Status ErrorCurvature::Measure(const ExecutionContext& context) {
  absl::StatusOr<double> base = MeanLoss(surface_, context);
  if (!base.ok()) return base.status();
  for (size_t i = 0; i < quantized_.size(); ++i) {
    Result& result = results_[i];
    if (!result.direction) continue;
    surface_.Replace(quantized_[i]);
    absl::StatusOr<double> loss = MeanLoss(surface_, context);
    if (absl::IsDataLoss(loss.status())) continue;
    if (!loss.ok()) return loss.status();
    result.delta = *loss - *base;
    absl::StatusOr<std::vector<double>> along =
        LossesAlong(surface_, surface_.Displacement(quantized_[i]), kScales, context);
    if (!along.ok()) return along.status();
    for (double value : *along) result.along.push_back(value - *base);
  }
  return surface_.MoveTo(nullptr, 0);
}

void ErrorCurvature::Fill(std::vector<QuantizationReport>& reports) const {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Result& result = results_[i];
    if (!result.direction || !result.delta) continue;
    const HessianDirection& direction = *result.direction;
    QuantizationReport& report = reports[i];
    report.predicted_delta_nats = direction.Predict(1);
    report.curvature_batch_delta_nats = result.delta;
    report.gradient_term_nats = direction.gradient_term;
    report.curvature_term_nats = direction.curvature_term;
    report.curvature_along_error = direction.curvature;
    report.top_eigenvector_alignment = result.alignment;
    for (size_t k = 0; k < std::size(kScales); ++k) {
      LossAlong& along = report.loss_along.emplace_back();
      along.scale = kScales[k];
      if (std::isfinite(result.along[k])) along.delta_nats = result.along[k];
      along.predicted_delta_nats = direction.Predict(kScales[k]);
    }
    const std::vector<VectorSpace::Part>& parts = surface_.space().parts();
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto layer = std::find_if(
          report.layers.begin(), report.layers.end(),
          [&](const LayerQuantization& candidate) { return candidate.name == parts[part].name; });
      if (layer == report.layers.end()) continue;
      layer->gradient_term_nats = direction.gradient_by_parameter[part];
      layer->curvature_term_nats = direction.curvature_by_parameter[part];
    }
  }
}

}  // namespace ptqwatch::internal
