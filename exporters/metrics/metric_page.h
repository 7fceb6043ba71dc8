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

/// What a scraper with this Accept header gets.
MetricFormat MetricFormatFor(std::string_view accept);
std::string_view ContentTypeOf(MetricFormat format);

/// The page /metrics. Series of layers, which are nearly all of it, are written once a report;
/// everything else is as new as the scrape. One thread at a time.
class MetricPage {
 public:
  /// REQUIRES: max_layers >= 0.
  explicit MetricPage(int max_layers) : shown_(max_layers) {}

  /// All metrics of the catalogue for each of `runs`, and the stall histogram. A metric without
  /// samples is left out.
  std::string Render(absl::Span<const RunMetrics> runs, MetricFormat format);

 private:
  // One text for each metric with layers, in the order of the catalogue.
  const std::vector<std::string>& LayerTexts(absl::Span<const RunMetrics> runs);

  ShownLayers shown_;
  std::string reports_;  // of which `texts_` are
  std::vector<std::string> texts_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_METRICS_METRIC_PAGE_H_
