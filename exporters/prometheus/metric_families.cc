#include "metric_families.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "prometheus/text_serializer.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kOverflow = "_overflow";

// Prometheus rejects a whole page for one label value that is not UTF-8, and its parser stops at a
// NUL: such bytes and control characters are shown as \xHH.
std::string LabelValue(std::string_view text) {
  std::string value;
  size_t valid = ValidUtf8Prefix(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool broken = i == valid;
    if (broken) valid = i + 1 + ValidUtf8Prefix(text.substr(i + 1));
    if (broken || (byte < 0x20 && byte != '\n') || byte == 0x7F) {
      value += StrFormat("\\x%02X", byte);
    } else {
      value += text[i];
    }
  }
  return value;
}

// Folds the layers beyond the cap into one; `layer` is the position of that label.
std::vector<MetricSample> CapLayers(std::vector<MetricSample> samples, size_t layer,
                                    int max_layers) {
  std::map<std::string, double> largest;
  for (const MetricSample& sample : samples) {
    auto [it, is_new] = largest.emplace(sample.labels[layer], sample.value);
    if (!is_new) it->second = std::max(it->second, sample.value);
  }
  std::vector<std::pair<std::string, double>> ranked(largest.begin(), largest.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  ranked.resize(std::min(ranked.size(), static_cast<size_t>(max_layers)));
  std::set<std::string> kept;
  for (auto& [name, value] : ranked) {
    if (name != kOverflow) kept.insert(std::move(name));
  }

  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::map<std::vector<std::string>, Mean> overflow;
  std::vector<MetricSample> capped;
  for (MetricSample& sample : samples) {
    if (kept.count(sample.labels[layer]) > 0) {
      capped.push_back(std::move(sample));
    } else {
      sample.labels[layer] = kOverflow;
      Mean& mean = overflow[std::move(sample.labels)];
      mean.sum += sample.value;
      ++mean.count;
    }
  }
  for (const auto& [labels, mean] : overflow) capped.push_back({labels, mean.sum / mean.count});
  return capped;
}

prometheus::ClientMetric& AddMetric(const RunMetrics& run, prometheus::MetricFamily& family) {
  prometheus::ClientMetric& added = family.metric.emplace_back();
  if (!run.run.empty()) added.label.push_back({"run", LabelValue(run.run)});
  return added;
}

void AddSamples(const MetricInfo& metric, const RunMetrics& run, int max_layers,
                prometheus::MetricFamily& family) {
  std::vector<MetricSample> samples = metric.collect(run.input);
  const auto layer = std::find(metric.labels.begin(), metric.labels.end(), "layer");
  if (layer != metric.labels.end()) {
    samples = CapLayers(std::move(samples), static_cast<size_t>(layer - metric.labels.begin()),
                        max_layers);
  }
  const bool is_counter = metric.type == MetricType::kCounter;
  for (const MetricSample& sample : samples) {
    prometheus::ClientMetric& shown = AddMetric(run, family);
    for (size_t i = 0; i < metric.labels.size(); ++i) {
      shown.label.push_back({std::string(metric.labels[i]), LabelValue(sample.labels[i])});
    }
    (is_counter ? shown.counter.value : shown.gauge.value) = sample.value;
  }
}

void AddStalls(const RunMetrics& run, prometheus::MetricFamily& family) {
  const MonitorStatus& status = run.input.status;
  auto& histogram = AddMetric(run, family).histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < status.stall_buckets.size(); ++i) {
    cumulative += static_cast<uint64_t>(status.stall_buckets[i]);
    const double bound = i < kStallBucketSeconds.size() ? kStallBucketSeconds[i]
                                                        : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = status.stall_seconds_total;
}

}  // namespace

std::vector<prometheus::MetricFamily> MakeMetricFamilies(absl::Span<const RunMetrics> runs,
                                                         int max_layers) {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](std::string_view name, std::string_view help, prometheus::MetricType type,
                       auto add_samples) {
    prometheus::MetricFamily family{std::string(name), std::string(help), type, {}};
    for (const RunMetrics& run : runs) add_samples(run, family);
    if (!family.metric.empty()) families.push_back(std::move(family));
  };
  for (const MetricInfo& metric : MetricCatalog()) {
    const bool is_counter = metric.type == MetricType::kCounter;
    add(metric.name, metric.help,
        is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
        [&](const RunMetrics& run, prometheus::MetricFamily& family) {
          AddSamples(metric, run, max_layers, family);
        });
  }
  add(kStallMetricName, kStallMetricHelp, prometheus::MetricType::Histogram, AddStalls);
  return families;
}

std::string RenderMetrics(absl::Span<const RunMetrics> runs, int max_layers) {
  return prometheus::TextSerializer().Serialize(MakeMetricFamilies(runs, max_layers));
}

}  // namespace ptqwatch::internal
