#ifndef PTQWATCH_METRIC_CATALOG_H_
#define PTQWATCH_METRIC_CATALOG_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"

namespace ptqwatch {

/// One value of a metric. `labels` are the values of MetricInfo::labels, in the same order.
struct MetricSample {
  std::vector<std::string> labels;
  double value = 0;
};

/// The input of a metric. `report` is null before the first report.
struct MetricInput {
  const RunInfo& run;
  const MonitorStatus& status;
  const AnalyzedReport* report;
  std::optional<double> status_unix_seconds = {};  ///< time of `status`, if known
};

enum class MetricType { kGauge, kCounter };

/// One row of the catalogue. Names and labels are a public contract and are never changed.
struct MetricInfo {
  std::string_view name;
  MetricType type;
  std::string_view help;
  std::vector<std::string_view> labels;
  /// Returns the current samples; empty if nothing was measured.
  std::vector<MetricSample> (*collect)(const MetricInput&);
};

/// Every scalar metric, in the order of the page. The stall histogram is the only metric that is
/// not a scalar.
PTQWATCH_EXPORT absl::Span<const MetricInfo> MetricCatalog();

inline constexpr std::string_view kStallMetricName = "ptqwatch_training_stall_seconds";
inline constexpr std::string_view kStallMetricHelp =
    "Time the training thread spent inside OnStep at steps where a snapshot was due.";

/// The catalogue as a Markdown table: metric, type, labels, meaning. docs/metrics.md shows it.
PTQWATCH_EXPORT std::string MetricCatalogMarkdown();

}  // namespace ptqwatch

#endif  // PTQWATCH_METRIC_CATALOG_H_
