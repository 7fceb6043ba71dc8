#ifndef PTQWATCH_PROBES_PREDICTION_CHECK_H_
#define PTQWATCH_PROBES_PREDICTION_CHECK_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "probes/probe_result.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Why the second-order prediction `error` of a quantizer's loss change must not be relied on;
/// empty if its error is smaller than the prediction itself. `measured` has the change on the probe
/// data. docs/curvature.md derives the rule.
std::string PredictionProblem(const ErrorCurvature& error, const QuantizationReport& measured);

/// QuantizationReport::beyond_quadratic_scale of losses by ascending scale. A loss that is not
/// finite is not predicted.
std::optional<double> BeyondQuadratic(absl::Span<const LossAlong> along);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PREDICTION_CHECK_H_
