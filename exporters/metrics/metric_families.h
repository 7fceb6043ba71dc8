#ifndef PTQWATCH_METRICS_METRIC_FAMILIES_H_
#define PTQWATCH_METRICS_METRIC_FAMILIES_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/metric_family.h"
#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// A run and the input of its metrics.
struct RunMetrics {
  std::string run;  ///< value of the label `run`; empty: no such label
  MetricInput input;
};

/// Chooses the layers of a metric that have series of their own. With hysteresis: a layer among the
/// `max_layers` largest keeps its place until it falls a quarter of that number behind, and a new
/// layer takes its place only when it is as far ahead. Series that come and go cost a time-series
/// database more than an exact ranking is worth. Not thread-safe.
class ShownLayers {
 public:
  /// REQUIRES: max_layers >= 0.
  explicit ShownLayers(int max_layers) : max_layers_(static_cast<size_t>(max_layers)) {}

  /// Returns the layers to show. `ranked` lists the layers of one metric of one run, largest first.
  const std::set<std::string>& Choose(const std::string& run, std::string_view metric,
                                      const std::vector<std::string>& ranked);

 private:
  const size_t max_layers_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> shown_;
};

/// Makes the family of one metric of the catalogue, for each of `runs`. If the metric has a `layer`
/// label, each run shows the layers that `shown` chooses by their largest value, the same layers
/// for every method and bit width. The mean of the others is shown as layer="_overflow". Bytes in
/// label values that a scraper would reject become \xHH.
prometheus::MetricFamily MakeMetricFamily(const MetricInfo& metric,
                                          absl::Span<const RunMetrics> runs, ShownLayers& shown);
/// Writes the same text as prometheus::TextSerializer for MakeMetricFamily, but without streams,
/// which are slow for the thousands of samples of a metric with layers.
std::string LayerText(const MetricInfo& metric, absl::Span<const RunMetrics> runs,
                      ShownLayers& shown);
prometheus::MetricFamily MakeStallFamily(absl::Span<const RunMetrics> runs);

/// Whether a metric has a `layer` label. Such a metric depends on the report alone.
bool HasLayers(const MetricInfo& metric);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_METRICS_METRIC_FAMILIES_H_
