#ifndef PTQWATCH_REPORT_PREDICTED_END_METRICS_H_
#define PTQWATCH_REPORT_PREDICTED_END_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The catalogue's rows of shadow cooldowns: what the planned decay would end with.
std::vector<MetricInfo> PredictedEndMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_PREDICTED_END_METRICS_H_
