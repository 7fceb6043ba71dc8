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

#include "absl/strings/str_format.h"
#include "prometheus/text_serializer.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kOverflow = "_overflow";

// Length of the UTF-8 sequence at the front of `text`, 0 where there is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and code points past U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) >= 0xA0) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

// Prometheus throws a whole page away for one label value that is not UTF-8, and its parser stops
// at a NUL.
std::string LabelValue(std::string_view text) {
  std::string value;
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8Length(text);
    if (length == 0 || (lead < 0x20 && lead != '\n') || lead == 0x7F) {
      value += absl::StrFormat("\\x%02X", lead);
      text.remove_prefix(1);
    } else {
      value += text.substr(0, length);
      text.remove_prefix(length);
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
