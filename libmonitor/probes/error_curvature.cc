#include "probes/error_curvature.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ptqwatch::internal {

ErrorCurvature::ErrorCurvature(ReplicaSurface& surface,
                               const std::vector<std::vector<Replica::Override>>& quantized,
                               const std::vector<double>& scales)
    : surface_(surface), quantized_(quantized), scales_(scales), results_(quantized.size()) {
  std::sort(scales_.begin(), scales_.end());
  scales_.erase(std::unique(scales_.begin(), scales_.end()), scales_.end());
  // W_hat itself is measured with its own weights, not with W + d, which rounds.
  scales_.erase(std::remove(scales_.begin(), scales_.end(), 1.0), scales_.end());
}

absl::Status ErrorCurvature::Predict(HessianOperator& hessian, const Vector& top,
                                     const ExecutionContext& context) {
  for (size_t i = 0; i < quantized_.size(); ++i) {
    if (quantized_[i].empty()) continue;
    const Vector d = surface_.Displacement(quantized_[i]);
    if (surface_.space().Norm(d) == 0) continue;  // nothing of it is in the scope
    absl::StatusOr<LossDirection> direction = MeasureDirection(hessian, d, top, context);
    if (absl::IsDataLoss(direction.status())) continue;  // this quantizer's alone
    if (!direction.ok()) return direction.status();
    results_[i].direction = *std::move(direction);
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
        LossesAlong(surface_, surface_.Displacement(quantized_[i]), scales_, context);
    if (!along.ok()) return along.status();
    for (double value : *along) result.along.push_back(value - *base);
  }
  return surface_.MoveTo(nullptr, 0);
}

void ErrorCurvature::Fill(std::vector<QuantizationReport>& reports) const {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Result& result = results_[i];
    if (!result.direction || !result.delta) continue;
    const LossDirection& direction = *result.direction;
    QuantizationReport& report = reports[i];
    report.predicted_delta_nats = direction.Predict(1);
    report.curvature_batch_delta_nats = result.delta;
    report.gradient_term_nats = direction.gradient_term;
    report.curvature_term_nats = direction.curvature_term;
    report.curvature_along_error = 2 * direction.curvature_term / direction.squared_norm;
    report.top_eigenvector_alignment = direction.alignment;
    for (size_t k = 0; k < scales_.size(); ++k) {
      LossAlong& along = report.loss_along.emplace_back();
      along.scale = scales_[k];
      if (std::isfinite(result.along[k])) along.delta_nats = result.along[k];
      along.predicted_delta_nats = direction.Predict(scales_[k]);
    }
    const std::vector<VectorSpace::Part>& parts = surface_.space().parts();
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto layer = std::find_if(
          report.layers.begin(), report.layers.end(),
          [&](const LayerQuantization& candidate) { return candidate.name == parts[part].name; });
      if (layer == report.layers.end()) continue;
      layer->gradient_term_nats = direction.gradient_by_part[part];
      layer->curvature_term_nats = direction.curvature_by_part[part];
    }
  }
}

}  // namespace ptqwatch::internal
