#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "report/metric_samples.h"

namespace ptqwatch::internal {
namespace {

using enum MetricType;

// The newest shadow cooldown with a result, or null.
const PredictedEnd* Predicted(Input input) {
  if (input.report == nullptr) return nullptr;
  const std::optional<PredictedEnd>& end = input.report->report.predicted_end;
  return end && end->status == ProbeStatus::kOk ? &*end : nullptr;
}

template <std::optional<double> PredictedEnd::*kMember>
Samples OfPrediction(Input input) {
  const PredictedEnd* end = Predicted(input);
  return end ? One(end->*kMember) : Samples{};
}

template <std::optional<double> PredictedError::*kMember>
Samples PredictedErrors(Input input) {
  Samples samples;
  const PredictedEnd* end = Predicted(input);
  if (end == nullptr) return samples;
  std::set<Labels> seen;
  for (const PredictedError& error : end->quantization) {
    const std::optional<double>& value = error.*kMember;
    if (!value || !std::isfinite(*value)) continue;
    Labels labels = QuantizerLabels(error);
    if (seen.insert(labels).second) samples.push_back({std::move(labels), *value});
  }
  return samples;
}

Samples CooldownProgress(Input input) {
  const CooldownStatus& cooldown = input.status.cooldown;
  if (cooldown.state != CooldownState::kSimulating || cooldown.steps_all == 0) return {};
  return One(static_cast<double>(cooldown.steps_done) / static_cast<double>(cooldown.steps_all));
}

}  // namespace

std::vector<MetricInfo> PredictedEndMetrics() {
  return {
      {"ptqwatch_predicted_end_error_ratio",
       kGauge,
       "ptqwatch_quantization_error_ratio at the end of the planned decay, predicted by the newest "
       "shadow cooldown.",
       {"method", "bits", "format"},
       PredictedErrors<&PredictedError::error_ratio>},
      {"ptqwatch_predicted_end_error_low_ratio",
       kGauge,
       "Lower end of the prediction's 95 % interval.",
       {"method", "bits", "format"},
       PredictedErrors<&PredictedError::error_low_ratio>},
      {"ptqwatch_predicted_end_error_high_ratio",
       kGauge,
       "Upper end of the prediction's 95 % interval.",
       {"method", "bits", "format"},
       PredictedErrors<&PredictedError::error_high_ratio>},
      {"ptqwatch_predicted_end_loss_nats",
       kGauge,
       "Predicted unquantized loss at the end of the planned decay.",
       {},
       OfPrediction<&PredictedEnd::loss_nats>},
      {"ptqwatch_predicted_end_trace",
       kGauge,
       "Predicted trace of the Hessian at the end of the planned decay.",
       {},
       OfPrediction<&PredictedEnd::trace>},
      {"ptqwatch_predicted_end_step",
       kGauge,
       "Step of the snapshot that the prediction starts from.",
       {},
       [](Input in) { return Predicted(in) ? Count(Predicted(in)->step) : Samples{}; }},
      {"ptqwatch_cooldown_progress_ratio",
       kGauge,
       "Share of the present shadow cooldown's steps that are simulated.",
       {},
       CooldownProgress},
  };
}

}  // namespace ptqwatch::internal
