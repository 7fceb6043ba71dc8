#include "report/metric_samples.h"

#include <set>
#include <string_view>
#include <utility>

#include "report/layer_groups.h"

namespace ptqwatch::internal {

Samples One(double value) {
  if (!std::isfinite(value)) return {};
  return {{{}, value}};
}

Samples Count(int64_t value) { return {{{}, static_cast<double>(value)}}; }

std::vector<const QuantizationReport*> Shown(Input input) {
  std::vector<const QuantizationReport*> shown;
  if (input.report == nullptr) return shown;
  std::set<QuantizerKey> seen;
  for (const QuantizationReport& entry : input.report->report.quantization) {
    if (!seen.insert(KeyOf(entry)).second) continue;
    if (entry.status == ProbeStatus::kOk) shown.push_back(&entry);
  }
  return shown;
}

Samples Coverage(Input input) {
  Samples samples;
  for (const QuantizationReport* entry : Shown(input)) {
    if (std::isfinite(entry->coverage_ratio)) {
      samples.push_back({QuantizerLabels(*entry), entry->coverage_ratio});
    }
  }
  return samples;
}

Samples Unseen(Input input) {
  if (input.report == nullptr || !input.report->report.unseen) return {};
  const UnseenWeights& unseen = *input.report->report.unseen;
  return {{{unseen.largest, unseen.reason}, unseen.ratio}};
}

Samples SliceProgress(Input input) {
  const SliceStatus& slice = input.status.slice;
  if (slice.state == SliceState::kDone) return One(1.0);
  if (!slice.under_way()) return {};
  return One(slice.points_all == 0
                 ? 0.0
                 : static_cast<double>(slice.points_done) / static_cast<double>(slice.points_all));
}

// Without the worst layers of stacks, whose series would come and go.
Samples PerLayer(Input input) {
  Samples samples;
  for (const QuantizationReport* entry : Shown(input)) {
    std::set<std::string_view> seen;
    for (const LayerQuantization& layer : entry->layers) {
      if (!layer.output_error_ratio || !std::isfinite(*layer.output_error_ratio)) continue;
      if (seen.contains(StackOf(layer.name)) || !seen.insert(layer.name).second) continue;
      Labels labels = QuantizerLabels(*entry);
      labels.insert(labels.begin(), layer.name);
      samples.push_back({std::move(labels), *layer.output_error_ratio});
    }
  }
  return samples;
}

const Report* Probed(Input input) {
  if (input.report == nullptr) return nullptr;
  return input.report->report.probe_status == ProbeStatus::kOk ? &input.report->report : nullptr;
}

const CurvatureReport* Curved(Input input) {
  if (input.report == nullptr || !input.report->report.curvature) return nullptr;
  const CurvatureReport& curvature = *input.report->report.curvature;
  return curvature.status == ProbeStatus::kOk ? &curvature : nullptr;
}

Samples LayerTraces(Input input) {
  Samples samples;
  if (Curved(input) == nullptr) return samples;
  std::set<std::string_view> seen;
  for (const LayerCurvature& layer : Curved(input)->layers) {
    if (!layer.trace || !std::isfinite(*layer.trace)) continue;
    if (seen.contains(StackOf(layer.name)) || !seen.insert(layer.name).second) continue;
    samples.push_back({{layer.name}, *layer.trace});
  }
  return samples;
}

Samples Events(Input input) {
  Samples samples;
  for (size_t i = 0; i < input.status.events.size(); ++i) {
    samples.push_back({{std::string(ToString(static_cast<Event::Kind>(i)))},
                       static_cast<double>(input.status.events[i])});
  }
  return samples;
}

Samples ProbeDurations(Input input) {
  Samples samples;
  if (input.report == nullptr) return samples;
  for (const auto& [probe, seconds] : input.report->report.cost) {
    // Excludes the stall of the training thread, which the histogram shows.
    if (probe != "stall" && std::isfinite(seconds)) samples.push_back({{probe}, seconds});
  }
  return samples;
}

Samples Snapshots(Input input) {
  Samples samples;
  for (int i = 0; i < kSnapshotResults; ++i) {
    samples.push_back({{std::string(ToString(static_cast<SnapshotResult>(i)))},
                       static_cast<double>(input.status.snapshots[static_cast<size_t>(i)])});
  }
  return samples;
}

Samples Drops(Input input) {
  Samples samples;
  for (const DroppedReports& dropped : input.status.dropped_reports) {
    samples.push_back({{dropped.exporter, dropped.reason}, static_cast<double>(dropped.count)});
  }
  return samples;
}

Samples AfterFirstStep(Input input, double value) {
  return input.status.step ? One(value) : Samples{};
}

}  // namespace ptqwatch::internal
