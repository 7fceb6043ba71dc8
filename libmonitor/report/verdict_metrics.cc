#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "report/metric_samples.h"

namespace ptqwatch::internal {
namespace {

using enum MetricType;

template <auto kMember>
Samples OfVerdict(Input input) {
  return input.report ? One(input.report->verdict.*kMember) : Samples{};
}

Samples States(Input input) {
  return input.report ? OneHot(input.report->verdict.state) : Samples{};
}

Samples Alerts(Input input) {
  Samples samples;
  for (MetricSample& sample : States(input)) {
    if (IsAlarm(*ParseVerdictState(sample.labels[0]))) samples.push_back(std::move(sample));
  }
  return samples;
}

Samples WatchedQuantizer(Input input) {
  if (input.report == nullptr || !input.report->verdict.method) return {};
  const Verdict& verdict = input.report->verdict;
  return {{QuantizerLabels(verdict), 1}};
}

template <std::optional<double> Evidence::*kMember>
Samples PerSeries(Input input) {
  Samples samples;
  if (input.report == nullptr) return samples;
  for (const Evidence& evidence : input.report->verdict.evidence) {
    const std::optional<double>& value = evidence.*kMember;
    if (value && std::isfinite(*value)) samples.push_back({{evidence.series}, *value});
  }
  return samples;
}

template <auto kMember>
Samples PerOutlook(Input input) {
  Samples samples;
  if (input.report == nullptr) return samples;
  std::set<Labels> seen;
  for (const DecayOutlook& outlook : input.report->verdict.outlook) {
    Labels labels = QuantizerLabels(outlook);
    if (!seen.insert(labels).second || !(outlook.*kMember)) continue;
    const auto value = static_cast<double>(*(outlook.*kMember));
    if (std::isfinite(value)) samples.push_back({std::move(labels), value});
  }
  return samples;
}

// Counts measurements of the newest snapshot that gave no finite number.
Samples NonFinite(Input input) {
  if (input.report == nullptr) return {};
  const Report& report = input.report->report;
  int64_t count = report.probe_status == ProbeStatus::kNonFinite ? 1 : 0;
  for (const QuantizationReport& entry : report.quantization) {
    count += entry.status == ProbeStatus::kNonFinite ? 1 : 0;
  }
  if (report.curvature && report.curvature->status == ProbeStatus::kNonFinite) ++count;
  return Count(count);
}

std::vector<MetricInfo> StateMetrics() {
  return {
      {"ptqwatch_verdict",
       kGauge,
       "1 for the current verdict on the quantization error series, 0 for the others.",
       {"state"},
       States},
      {"ptqwatch_alert_active",
       kGauge,
       "1 if the current verdict is this alarm, else 0.",
       {"kind"},
       Alerts},
      {"ptqwatch_verdict_severity_nats",
       kGauge,
       "Mean excess since the onset of the watched quantizer's loss increase over its baseline.",
       {},
       OfVerdict<&Verdict::severity_nats>},
      {"ptqwatch_verdict_severity_low_nats",
       kGauge,
       "Lower end of the severity's 95 % interval.",
       {},
       OfVerdict<&Verdict::severity_low_nats>},
      {"ptqwatch_verdict_severity_high_nats",
       kGauge,
       "Upper end of the severity's 95 % interval.",
       {},
       OfVerdict<&Verdict::severity_high_nats>},
      {"ptqwatch_verdict_severity_ratio",
       kGauge,
       "Mean ratio since the onset of the watched quantizer's loss increase to its baseline.",
       {},
       OfVerdict<&Verdict::severity_ratio>},
      {"ptqwatch_verdict_sigmas",
       kGauge,
       "Evidence of all series together for a rise, in standard errors.",
       {},
       OfVerdict<&Verdict::sigmas>},
      {"ptqwatch_verdict_alarm_sigmas",
       kGauge,
       "Value of ptqwatch_verdict_sigmas that raises an alarm.",
       {},
       OfVerdict<&Verdict::alarm_sigmas>},
      {"ptqwatch_verdict_onset_step",
       kGauge,
       "First snapshot of the rise or drift that the verdict names.",
       {},
       OfVerdict<&Verdict::onset_step>},
      {"ptqwatch_loss_converged_step",
       kGauge,
       "First snapshot since which the loss has not improved.",
       {},
       OfVerdict<&Verdict::loss_converged_step>},
  };
}

// Metrics about the series and baselines behind the verdict.
std::vector<MetricInfo> BasisMetrics() {
  return {
      {"ptqwatch_verdict_quantizer_info",
       kGauge,
       "Always 1; the labels name the watched quantizer, whose severity the verdict gives.",
       {"method", "bits", "format"},
       WatchedQuantizer},
      {"ptqwatch_verdict_evidence_sigmas",
       kGauge,
       "How far a series is above its baseline since the onset, in standard errors. series: its "
       "name, such as loss_delta_gptq3; \"quantization\", \"curvature\": a whole kind.",
       {"series"},
       PerSeries<&Evidence::sigmas>},
      {"ptqwatch_verdict_evidence_ratio",
       kGauge,
       "Mean ratio of a series to its baseline since the onset.",
       {"series"},
       PerSeries<&Evidence::ratio>},
      {"ptqwatch_nonfinite_measurements",
       kGauge,
       "Measurements of the newest snapshot (loss, each quantizer, curvature) that gave NaN or "
       "infinity.",
       {},
       NonFinite},
      {"ptqwatch_decay_gain_kept_ratio",
       kGauge,
       "Share of the loss gained since the decay began that survives quantization; negative if the "
       "quantized model got worse.",
       {"method", "bits", "format"},
       PerOutlook<&DecayOutlook::gain_kept_ratio>},
      {"ptqwatch_decay_gain_kept_ratio_stderr",
       kGauge,
       "Standard error of the surviving share.",
       {"method", "bits", "format"},
       PerOutlook<&DecayOutlook::gain_kept_stderr>},
      {"ptqwatch_decay_minimum_loss_nats",
       kGauge,
       "Smallest quantized loss of the decay, a mean of three snapshots. Absent unless the newest "
       "three are three standard errors above it.",
       {"method", "bits", "format"},
       PerOutlook<&DecayOutlook::minimum_loss_nats>},
      {"ptqwatch_decay_minimum_step",
       kGauge,
       "Optimizer step of ptqwatch_decay_minimum_loss_nats: where to stop for this quantizer.",
       {"method", "bits", "format"},
       PerOutlook<&DecayOutlook::minimum_step>},
  };
}

}  // namespace

std::vector<MetricInfo> VerdictMetrics() {
  std::vector<MetricInfo> metrics = StateMetrics();
  for (MetricInfo& metric : BasisMetrics()) metrics.push_back(std::move(metric));
  return metrics;
}

}  // namespace ptqwatch::internal
