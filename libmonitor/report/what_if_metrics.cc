#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "report/metric_samples.h"

namespace ptqwatch::internal {
namespace {

using enum MetricType;

// The measured averages, with the value of their `window` label.
std::vector<std::pair<std::string, const AveragingReport*>> Averages(Input input) {
  std::vector<std::pair<std::string, const AveragingReport*>> averages;
  if (input.report == nullptr) return averages;
  std::set<std::string> seen;
  for (const AveragingReport& average : input.report->report.averaging) {
    if (average.status != ProbeStatus::kOk || !average.kind) continue;
    std::string window =
        *average.kind == AveragingKind::kExponential ? "ema" : std::to_string(average.window);
    if (average.kind == AveragingKind::kMerge) window += StrCat("_", ToString(average.shape));
    if (seen.insert(window).second) averages.emplace_back(std::move(window), &average);
  }
  return averages;
}

Samples AveragedLosses(Input input) {
  Samples samples;
  for (const auto& [window, average] : Averages(input)) {
    if (average->loss_nats && std::isfinite(*average->loss_nats)) {
      samples.push_back({{window}, *average->loss_nats});
    }
  }
  return samples;
}

Samples AveragedQuantizedLosses(Input input) {
  Samples samples;
  for (const auto& [window, average] : Averages(input)) {
    std::set<Labels> seen;
    for (const QuantizationReport& entry : average->quantization) {
      if (entry.status != ProbeStatus::kOk) continue;
      if (!entry.loss_nats || !std::isfinite(*entry.loss_nats)) continue;
      Labels labels = QuantizerLabels(entry);
      labels.insert(labels.begin(), window);
      if (seen.insert(labels).second) samples.push_back({std::move(labels), *entry.loss_nats});
    }
  }
  return samples;
}

Samples AveragedSnapshots(Input input) {
  Samples samples;
  for (const auto& [window, average] : Averages(input)) {
    samples.push_back({{window}, static_cast<double>(average->snapshots)});
  }
  return samples;
}

Samples MixedPrecisionDeltas(Input input) {
  Samples samples;
  if (input.report == nullptr) return samples;
  std::set<Labels> seen;
  for (const MixedPrecisionReport& mixture : input.report->report.mixed_precision) {
    if (mixture.status != ProbeStatus::kOk) continue;
    if (!mixture.delta_nats || !std::isfinite(*mixture.delta_nats)) continue;
    Labels labels = QuantizerLabels(mixture);
    labels.push_back(std::to_string(mixture.raised_bits));
    labels.push_back(std::to_string(mixture.raised_layers.size()));
    if (seen.insert(labels).second) samples.push_back({std::move(labels), *mixture.delta_nats});
  }
  return samples;
}

template <std::optional<double> NoiseReport::*kMember>
Samples OfNoise(Input input) {
  if (input.report == nullptr || !input.report->report.noise) return {};
  const NoiseReport& noise = *input.report->report.noise;
  return noise.status == ProbeStatus::kOk ? One(noise.*kMember) : Samples{};
}

template <std::optional<double> PooledLoss::*kMember>
Samples OfPooled(Input input) {
  if (input.report == nullptr || !input.report->report.pooled) return {};
  const PooledLoss& pooled = *input.report->report.pooled;
  const std::optional<double>& value = pooled.*kMember;
  if (pooled.status != ProbeStatus::kOk || !value || !std::isfinite(*value)) return {};
  return {{QuantizerLabels(pooled), *value}};
}

// Each task and metric of one model once; `model` are its labels.
void AddTasks(const std::vector<TaskReport>& tasks, const Labels& model, Samples& samples) {
  std::set<Labels> seen;
  for (const TaskReport& task : tasks) {
    if (!task.value || !std::isfinite(*task.value)) continue;
    Labels labels = {task.task, task.metric};
    labels.insert(labels.end(), model.begin(), model.end());
    if (seen.insert(labels).second) samples.push_back({std::move(labels), *task.value});
  }
}

Samples TaskValues(Input input) {
  Samples samples;
  if (Probed(input) == nullptr) return samples;
  AddTasks(Probed(input)->tasks, {"", "", ""}, samples);
  for (const QuantizationReport* entry : Shown(input)) {
    AddTasks(entry->tasks, QuantizerLabels(*entry), samples);
  }
  return samples;
}

}  // namespace

std::vector<MetricInfo> WhatIfMetrics() {
  using Q = QuantizationReport;
  return {
      {"ptqwatch_probe_accuracy_ratio",
       kGauge,
       "Share of the probe examples that the unquantized model gets right. Absent if losses sets "
       "no LossValues::correct.",
       {},
       [](Input in) { return One(Probed(in) ? Probed(in)->probe_accuracy_ratio : std::nullopt); }},
      {"ptqwatch_quantized_accuracy_ratio",
       kGauge,
       "Share of the probe examples that the quantized model gets right.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::accuracy_ratio>},
      {"ptqwatch_accuracy_degradation_ratio",
       kGauge,
       "(Acc(W) - Acc(W_hat)) / (1 - Acc(W)): examples lost to quantization, over those wrong "
       "without it.",
       {"method", "bits", "format"},
       PerQuantizer<&Q::accuracy_degradation_ratio>},
      {"ptqwatch_task_value",
       kGauge,
       "Metric of a task; of full precision if method is empty.",
       {"task", "metric", "method", "bits", "format"},
       TaskValues},
      {"ptqwatch_averaged_loss_nats",
       kGauge,
       "Loss of the average of the last snapshots. window: their number, of a merge with its decay "
       "(6_cosine), or \"ema\" (exponential).",
       {"window"},
       AveragedLosses},
      {"ptqwatch_averaged_quantized_loss_nats",
       kGauge,
       "Loss of the average, quantized.",
       {"window", "method", "bits", "format"},
       AveragedQuantizedLosses},
      {"ptqwatch_averaged_snapshots",
       kGauge,
       "Snapshots in the average: fewer than `window` while it fills or if memory is short.",
       {"window"},
       AveragedSnapshots},
      {"ptqwatch_mixed_precision_loss_delta_nats",
       kGauge,
       "Loss increase at `bits` with the `raised_layers` worst layers at `raised_bits`.",
       {"method", "bits", "format", "raised_bits", "raised_layers"},
       MixedPrecisionDeltas},
      {"ptqwatch_noise_loss_delta_nats",
       kGauge,
       "Loss increase under noise in quantized weights "
       "(MonitorOptions::noise_relative_norm).",
       {},
       OfNoise<&NoiseReport::delta_nats>},
      {"ptqwatch_noise_loss_delta_nats_stderr",
       kGauge,
       "Standard error of the loss increase under noise.",
       {},
       OfNoise<&NoiseReport::delta_stderr_nats>},
      {"ptqwatch_pooled_error_ratio",
       kGauge,
       "ptqwatch_quantization_error_ratio on all sets of probe batches.",
       {"method", "bits", "format"},
       OfPooled<&PooledLoss::error_ratio>},
      {"ptqwatch_pooled_error_ratio_stderr",
       kGauge,
       "Standard error of the pooled ratio.",
       {"method", "bits", "format"},
       OfPooled<&PooledLoss::error_ratio_stderr>},
  };
}

}  // namespace ptqwatch::internal
