#ifndef PTQWATCH_REPORT_PREDICTION_PROBLEM_H_
#define PTQWATCH_REPORT_PREDICTION_PROBLEM_H_

#include <string>

#include "ptqwatch/config.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Why the second-order prediction of a quantizer's loss change is unreliable
/// (QuantizationReport::prediction_detail): it misses the change measured on its own batch or on
/// the probe tokens by more than itself, with two standard errors. Empty if it holds, or without a
/// prediction.
PTQWATCH_EXPORT std::string PredictionProblem(const QuantizationReport& measured);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_PREDICTION_PROBLEM_H_
