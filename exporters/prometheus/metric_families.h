#ifndef PTQWATCH_PROMETHEUS_METRIC_FAMILIES_H_
#define PTQWATCH_PROMETHEUS_METRIC_FAMILIES_H_

#include <string>
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

/// All metrics of the catalogue for each of `runs`, and the stall histogram. A metric without
/// samples is left out. Metrics with a `layer` label keep, of each run, the `max_layers` layers
/// whose largest value is greatest, the same ones for every method and bit width; the mean of the
/// others is shown as layer="_overflow". Bytes of label values that a scraper would reject are
/// shown as \xHH.
std::vector<prometheus::MetricFamily> MakeMetricFamilies(absl::Span<const RunMetrics> runs,
                                                         int max_layers);

/// The same as a page in Prometheus text format 0.0.4.
std::string RenderMetrics(absl::Span<const RunMetrics> runs, int max_layers);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROMETHEUS_METRIC_FAMILIES_H_
