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

prometheus::MetricFamily MakeFamily(const MetricInfo& metric, const MetricInput& input,
                                    int max_layers) {
  std::vector<MetricSample> samples = metric.collect(input);
  const auto layer = std::find(metric.labels.begin(), metric.labels.end(), "layer");
  if (layer != metric.labels.end()) {
    samples = CapLayers(std::move(samples), static_cast<size_t>(layer - metric.labels.begin()),
                        max_layers);
  }

  prometheus::MetricFamily family;
  family.name = std::string(metric.name);
  family.help = std::string(metric.help);
  const bool is_counter = metric.type == MetricType::kCounter;
  family.type = is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  for (const MetricSample& sample : samples) {
    prometheus::ClientMetric& shown = family.metric.emplace_back();
    for (size_t i = 0; i < metric.labels.size(); ++i) {
      shown.label.push_back({std::string(metric.labels[i]), LabelValue(sample.labels[i])});
    }
    (is_counter ? shown.counter.value : shown.gauge.value) = sample.value;
  }
  return family;
}

prometheus::MetricFamily MakeStallHistogram(const MonitorStatus& status) {
  prometheus::MetricFamily family;
  family.name = std::string(kStallMetricName);
  family.help = std::string(kStallMetricHelp);
  family.type = prometheus::MetricType::Histogram;
  auto& histogram = family.metric.emplace_back().histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < status.stall_buckets.size(); ++i) {
    cumulative += static_cast<uint64_t>(status.stall_buckets[i]);
    const double bound = i < kStallBucketSeconds.size() ? kStallBucketSeconds[i]
                                                        : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = status.stall_seconds_total;
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> MakeMetricFamilies(const MetricInput& input, int max_layers) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricInfo& metric : MetricCatalog()) {
    prometheus::MetricFamily family = MakeFamily(metric, input, max_layers);
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  families.push_back(MakeStallHistogram(input.status));
  return families;
}

std::string RenderMetrics(const MetricInput& input, int max_layers) {
  return prometheus::TextSerializer().Serialize(MakeMetricFamilies(input, max_layers));
}

}  // namespace ptqwatch::internal
