#include "metrics/metric_families.h"

#include <algorithm>
#include <charconv>
#include <cmath>
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

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kOverflow = "_overflow";

// Writes invalid UTF-8 and control characters as \xHH. One invalid label value makes Prometheus
// reject the whole page, and its parser stops at a NUL.
std::string LabelValue(std::string_view text) {
  size_t valid = ValidUtf8Prefix(text);
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\n') || byte == 0x7F;
  };
  // The common case.
  if (valid == text.size() && std::none_of(text.begin(), text.end(), is_control)) {
    return std::string(text);
  }
  std::string value;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool broken = i == valid;
    if (broken) valid = i + 1 + ValidUtf8Prefix(text.substr(i + 1));
    if (broken || is_control(text[i])) {
      value += StrFormat("\\x%02X", byte);
    } else {
      value += text[i];
    }
  }
  return value;
}

std::vector<std::string> Ranked(const std::vector<MetricSample>& samples, size_t layer) {
  std::map<std::string, double> largest;
  for (const MetricSample& sample : samples) {
    auto [it, is_new] = largest.emplace(sample.labels[layer], sample.value);
    if (!is_new) it->second = std::max(it->second, sample.value);
  }
  std::vector<std::pair<std::string, double>> order(largest.begin(), largest.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> ranked;
  for (auto& [name, value] : order) {
    if (name != kOverflow) ranked.push_back(std::move(name));
  }
  return ranked;
}

// Replaces the layers that are not in `kept` by their mean; `layer` is the position of the layer
// label.
std::vector<MetricSample> FoldLayers(std::vector<MetricSample> samples, size_t layer,
                                     const std::set<std::string>& kept) {
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

std::vector<MetricSample> SamplesOf(const MetricInfo& metric, const RunMetrics& run,
                                    ShownLayers& shown) {
  std::vector<MetricSample> samples = metric.collect(run.input);
  const auto label = std::find(metric.labels.begin(), metric.labels.end(), "layer");
  if (label == metric.labels.end()) return samples;
  const auto layer = static_cast<size_t>(label - metric.labels.begin());
  const auto& kept = shown.Choose(run.run, metric.name, Ranked(samples, layer));
  return FoldLayers(std::move(samples), layer, kept);
}

void AddSamples(const MetricInfo& metric, const RunMetrics& run, ShownLayers& shown,
                prometheus::MetricFamily& family) {
  const bool is_counter = metric.type == MetricType::kCounter;
  for (const MetricSample& sample : SamplesOf(metric, run, shown)) {
    prometheus::ClientMetric& added = AddMetric(run, family);
    for (size_t i = 0; i < metric.labels.size(); ++i) {
      added.label.push_back({std::string(metric.labels[i]), LabelValue(sample.labels[i])});
    }
    (is_counter ? added.counter.value : added.gauge.value) = sample.value;
  }
}

void AppendLabel(std::string_view name, std::string_view value, std::string& text) {
  text += text.back() == '{' ? "" : ",";
  text += name;
  text += "=\"";
  for (const char c : LabelValue(value)) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  text += '"';
}

void AppendValue(double value, std::string& text) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "Nan" : value > 0 ? "+Inf" : "-Inf";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::general,
                                 std::numeric_limits<double>::max_digits10 - 1);
  text.append(digits, end.ptr);
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

const std::set<std::string>& ShownLayers::Choose(const std::string& run, std::string_view metric,
                                                 const std::vector<std::string>& ranked) {
  std::set<std::string>& before = shown_[{run, std::string(metric)}];
  const size_t slack = max_layers_ / 4;
  std::set<std::string> now;
  const auto add = [&](size_t end, auto may) {
    for (size_t i = 0; i < std::min(end, ranked.size()) && now.size() < max_layers_; ++i) {
      if (may(ranked[i])) now.insert(ranked[i]);
    }
  };
  const auto any = [](const std::string&) { return true; };
  add(max_layers_ - slack, any);
  add(max_layers_ + slack, [&](const std::string& name) { return before.count(name) > 0; });
  add(ranked.size(), any);
  before = std::move(now);
  return before;
}

bool HasLayers(const MetricInfo& metric) {
  return std::find(metric.labels.begin(), metric.labels.end(), "layer") != metric.labels.end();
}

prometheus::MetricFamily MakeMetricFamily(const MetricInfo& metric,
                                          absl::Span<const RunMetrics> runs, ShownLayers& shown) {
  const bool is_counter = metric.type == MetricType::kCounter;
  prometheus::MetricFamily family{
      std::string(metric.name),
      std::string(metric.help),
      is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
      {}};
  for (const RunMetrics& run : runs) AddSamples(metric, run, shown, family);
  return family;
}

std::string LayerText(const MetricInfo& metric, absl::Span<const RunMetrics> runs,
                      ShownLayers& shown) {
  std::string text;
  for (const RunMetrics& run : runs) {
    for (const MetricSample& sample : SamplesOf(metric, run, shown)) {
      text += metric.name;
      text += '{';
      if (!run.run.empty()) AppendLabel("run", run.run, text);
      for (size_t i = 0; i < metric.labels.size(); ++i) {
        AppendLabel(metric.labels[i], sample.labels[i], text);
      }
      text += "} ";
      AppendValue(sample.value, text);
      text += '\n';
    }
  }
  if (text.empty()) return text;
  return StrCat("# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " ",
                metric.type == MetricType::kCounter ? "counter" : "gauge", "\n", text);
}

prometheus::MetricFamily MakeStallFamily(absl::Span<const RunMetrics> runs) {
  prometheus::MetricFamily family{std::string(kStallMetricName),
                                  std::string(kStallMetricHelp),
                                  prometheus::MetricType::Histogram,
                                  {}};
  for (const RunMetrics& run : runs) AddStalls(run, family);
  return family;
}

}  // namespace ptqwatch::internal
