#ifndef PTQWATCH_REPORT_VERDICT_METRICS_H_
#define PTQWATCH_REPORT_VERDICT_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The catalogue's rows about the verdict.
std::vector<MetricInfo> VerdictMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_VERDICT_METRICS_H_
