#ifndef PTQWATCH_REPORT_RANK_METRICS_H_
#define PTQWATCH_REPORT_RANK_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The metrics of a run with several ranks: each rank's health, and whether their parameters are
/// equal.
std::vector<MetricInfo> RankMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_RANK_METRICS_H_
