#ifndef PTQWATCH_METRICS_METRIC_PAGE_H_
#define PTQWATCH_METRICS_METRIC_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "metrics/metric_families.h"

namespace ptqwatch::internal {

enum class MetricFormat {
  kText,         ///< Prometheus text format 0.0.4
  kOpenMetrics,  ///< OpenMetrics 1.0.0
};

/// The format for a scraper with this Accept header.
MetricFormat MetricFormatFor(std::string_view accept);
std::string_view ContentTypeOf(MetricFormat format);

/// The page /metrics. The series of layers, nearly the whole page, are written once per report;
/// everything else is collected at each scrape. Not thread-safe.
class MetricPage {
 public:
  /// REQUIRES: max_layers >= 0.
  explicit MetricPage(int max_layers) : shown_(max_layers) {}

  /// Renders all metrics of the catalogue for each of `runs`, and the stall histogram. Omits
  /// metrics without samples.
  std::string Render(absl::Span<const RunMetrics> runs, MetricFormat format);

 private:
  // One text for each metric with layers, in the order of the catalogue.
  const std::vector<std::string>& LayerTexts(absl::Span<const RunMetrics> runs);

  ShownLayers shown_;
  std::string reports_;  // identifies the reports that `texts_` were made from
  std::vector<std::string> texts_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_METRICS_METRIC_PAGE_H_
