#ifndef PTQWATCH_REPORT_WHAT_IF_METRICS_H_
#define PTQWATCH_REPORT_WHAT_IF_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The catalogue's rows for accuracies, averages of snapshots and mixed precision.
std::vector<MetricInfo> WhatIfMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_WHAT_IF_METRICS_H_
