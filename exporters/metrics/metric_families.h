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

/// A run and what its metrics are computed from.
struct RunMetrics {
  std::string run;  ///< value of the label `run`; empty: there is no such label
  MetricInput input;
};

/// Which layers of a metric have series of their own. A layer that is among the `max_layers`
/// largest keeps its place until it has fallen a quarter of that number behind, and a new one takes
/// it only when it is that far ahead: series that come and go cost a time-series database more than
/// a ranking is worth. One thread at a time.
class ShownLayers {
 public:
  /// REQUIRES: max_layers >= 0.
  explicit ShownLayers(int max_layers) : max_layers_(static_cast<size_t>(max_layers)) {}

  /// `ranked` are the layers of a metric of a run, the largest first.
  const std::set<std::string>& Choose(const std::string& run, std::string_view metric,
                                      const std::vector<std::string>& ranked);

 private:
  const size_t max_layers_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> shown_;
};

/// A metric of the catalogue for each of `runs`. Of a metric with a `layer` label each run shows
/// the layers that `shown` chooses, by their largest value, the same ones for every method and bit
/// width; the mean of the others is shown as layer="_overflow". Bytes of label values that a
/// scraper would reject are shown as \xHH.
prometheus::MetricFamily MakeMetricFamily(const MetricInfo& metric,
                                          absl::Span<const RunMetrics> runs, ShownLayers& shown);
/// The text of MakeMetricFamily as prometheus::TextSerializer writes it, for a metric with layers:
/// of these there are thousands of samples, and streams are slow.
std::string LayerText(const MetricInfo& metric, absl::Span<const RunMetrics> runs,
                      ShownLayers& shown);
prometheus::MetricFamily MakeStallFamily(absl::Span<const RunMetrics> runs);

/// Whether a metric has a `layer` label. It is then of the report alone.
bool HasLayers(const MetricInfo& metric);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_METRICS_METRIC_FAMILIES_H_
