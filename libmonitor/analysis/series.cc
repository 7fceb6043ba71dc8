#include "analysis/series.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

constexpr double kErrorFloor = 1e-3;

void AddPositive(SeriesKind kind, std::string name, const std::optional<double>& value,
                 SeriesValues& values) {
  if (!value || !std::isfinite(*value) || *value <= 0) return;
  values.emplace(std::move(name), SeriesValue{kind, *value, std::log(*value)});
}

// If the loss is missing or not positive, the change in nats can still be compared.
SeriesValue ErrorValue(double delta, double loss) {
  return {SeriesKind::kError, delta, ErrorLogarithm(loss > 0 ? delta / loss : delta)};
}

std::string NameOfError(const QuantizationReport& entry) {
  return StrCat("loss_delta_", ShortName(KeyOf(entry)));
}

}  // namespace

double ErrorLogarithm(double error_ratio) {
  return std::log(std::max(error_ratio, 0.0) + kErrorFloor);
}

double ErrorRatio(double logarithm) { return std::exp(logarithm) - kErrorFloor; }

SeriesValues SeriesOf(const Report& report) {
  SeriesValues values;
  const double loss = report.probe_loss_nats.value_or(NAN);
  for (const QuantizationReport& entry : report.quantization) {
    const std::string name = ShortName(KeyOf(entry));
    const double delta = entry.delta_nats.value_or(NAN);
    if (entry.status != ProbeStatus::kOk || !std::isfinite(delta)) continue;
    values.emplace(NameOfError(entry), ErrorValue(delta, loss));
    // Curvature that does not predict the rise cannot explain it.
    if (entry.prediction_detail.empty()) {
      AddPositive(SeriesKind::kCurvature, StrCat("curvature_along_error_", name),
                  entry.curvature_along_error, values);
      AddPositive(SeriesKind::kCurvature, StrCat("critical_sharpness_", name),
                  entry.critical_sharpness, values);
    }
    AddPositive(SeriesKind::kDisplacement, StrCat("displacement_", name), entry.displacement_norm,
                values);
  }
  // To second order the mean loss increase under noise is s^2 / 2 times the weighted trace.
  if (const auto& noise = report.noise;
      noise && noise->status == ProbeStatus::kOk && noise->delta_nats && noise->relative_norm > 0) {
    AddPositive(SeriesKind::kCurvature, "noise_weighted_trace",
                2 * *noise->delta_nats / std::pow(noise->relative_norm, 2), values);
  }
  if (report.curvature && report.curvature->status == ProbeStatus::kOk) {
    AddPositive(SeriesKind::kCurvature, "trace", report.curvature->trace, values);
    AddPositive(SeriesKind::kCurvature, "weighted_trace", report.curvature->weighted_trace, values);
  }
  return values;
}

std::optional<WatchedSeries> WatchedSeriesOf(const Report& report, const SeriesValues& values) {
  const std::optional<size_t> watched = WatchedQuantizer(report.quantization);
  if (!watched) return std::nullopt;
  const auto found = values.find(NameOfError(report.quantization[*watched]));
  if (found == values.end()) return std::nullopt;
  WatchedSeries series{found->first, found->second, std::nullopt};
  const auto& pooled = report.pooled;
  if (pooled && pooled->status == ProbeStatus::kOk && pooled->delta_nats &&
      std::isfinite(*pooled->delta_nats)) {
    series.pooled = ErrorValue(*pooled->delta_nats, report.probe_loss_nats.value_or(NAN));
  }
  return series;
}

}  // namespace ptqwatch::internal
