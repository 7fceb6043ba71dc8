#ifndef PTQWATCH_REPORT_VERDICT_METRICS_H_
#define PTQWATCH_REPORT_VERDICT_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The rows of the metric catalogue that say what the verdict says.
std::vector<MetricInfo> VerdictMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_VERDICT_METRICS_H_
