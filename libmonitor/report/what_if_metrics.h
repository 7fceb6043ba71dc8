#ifndef PTQWATCH_REPORT_WHAT_IF_METRICS_H_
#define PTQWATCH_REPORT_WHAT_IF_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The catalogue's rows of what a report says beside the losses of its own weights: accuracies,
/// averages of snapshots, mixed precision.
std::vector<MetricInfo> WhatIfMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_WHAT_IF_METRICS_H_
