#ifndef PTQWATCH_REPORT_PREDICTED_END_METRICS_H_
#define PTQWATCH_REPORT_PREDICTED_END_METRICS_H_

#include <vector>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch::internal {

/// The catalogue's rows about shadow cooldowns, the predicted end of the planned decay.
std::vector<MetricInfo> PredictedEndMetrics();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_PREDICTED_END_METRICS_H_
