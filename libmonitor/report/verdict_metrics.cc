#include "report/verdict_metrics.h"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "report/metric_samples.h"

namespace ptqwatch::internal {
namespace {

constexpr MetricType kGauge = MetricType::kGauge;

template <auto kMember>
Samples OfVerdict(Input input) {
  return input.report ? One(input.report->verdict.*kMember) : Samples{};
}

Samples States(Input input) {
  return input.report ? OneHot(input.report->verdict.state, VerdictState::kUnclear) : Samples{};
}

Samples Alerts(Input input) {
  Samples samples;
  for (MetricSample& sample : States(input)) {
    if (IsAlarm(*ParseVerdictState(sample.labels[0]))) samples.push_back(std::move(sample));
  }
  return samples;
}

Samples GainKept(Input input) {
  Samples samples;
  if (input.report == nullptr) return samples;
  std::set<Labels> seen;
  for (const DecayOutlook& outlook : input.report->verdict.outlook) {
    Labels labels = {std::string(ToString(outlook.method)), std::to_string(outlook.bits)};
    if (!seen.insert(labels).second) continue;
    const std::optional<double>& kept = outlook.gain_kept_ratio;
    if (kept && std::isfinite(*kept)) samples.push_back({std::move(labels), *kept});
  }
  return samples;
}

}  // namespace

std::vector<MetricInfo> VerdictMetrics() {
  return {
      {"ptqwatch_verdict",
       kGauge,
       "1 for the current verdict on the quantization error series, 0 for the others.",
       {"state"},
       States},
      {"ptqwatch_alert_active",
       kGauge,
       "1 for the alarm that the current verdict is, 0 for the others.",
       {"kind"},
       Alerts},
      {"ptqwatch_verdict_severity_nats",
       kGauge,
       "By how much the watched quantizer's loss increase exceeds what the baseline predicts, as a "
       "mean since the onset, in nats per token.",
       {},
       OfVerdict<&Verdict::severity_nats>},
      {"ptqwatch_verdict_severity_ratio",
       kGauge,
       "The watched quantizer's loss increase over what the baseline predicts, as a mean since the "
       "onset.",
       {},
       OfVerdict<&Verdict::severity_ratio>},
      {"ptqwatch_verdict_sigmas",
       kGauge,
       "Evidence for a rise in standard errors, of all series together.",
       {},
       OfVerdict<&Verdict::sigmas>},
      {"ptqwatch_verdict_alarm_sigmas",
       kGauge,
       "What ptqwatch_verdict_sigmas has to reach for an alarm.",
       {},
       OfVerdict<&Verdict::alarm_sigmas>},
      {"ptqwatch_verdict_onset_step",
       kGauge,
       "First snapshot of the rise or drift that the verdict names.",
       {},
       OfVerdict<&Verdict::onset_step>},
      {"ptqwatch_decay_gain_kept_ratio",
       kGauge,
       "Share of the loss gained since the decay began that survives quantization; negative where "
       "the quantized model got worse.",
       {"method", "bits"},
       GainKept},
  };
}

}  // namespace ptqwatch::internal
