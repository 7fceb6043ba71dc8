#include "probes/prediction_check.h"

#include <algorithm>
#include <cmath>

#include "report/prediction_problem.h"

namespace ptqwatch::internal {
namespace {

// Standard errors by which another batch of the same size may differ.
constexpr double kLikelyErrors = 2;
// The largest error of a prediction that holds, relative to the measured change.
constexpr double kHoldsWithin = 0.25;

bool Holds(const LossAlong& along) {
  if (!along.delta_nats || !along.predicted_delta_nats) return false;
  const double miss = std::abs(*along.predicted_delta_nats - *along.delta_nats);
  return miss <= std::max(kHoldsWithin * std::abs(*along.delta_nats),
                          kLikelyErrors * along.delta_stderr_nats.value_or(0));
}

}  // namespace

std::string PredictionProblem(const ErrorCurvature& error, const QuantizationReport& measured) {
  QuantizationReport both;
  both.delta_nats = measured.delta_nats;
  both.routing_change_ratio = measured.routing_change_ratio;
  both.predicted_delta_nats = error.predicted_delta_nats;
  both.curvature_batch_delta_nats = error.delta_nats;
  both.curvature_batch_delta_stderr_nats = error.delta_stderr_nats;
  return PredictionProblem(both);
}

std::optional<double> BeyondQuadratic(absl::Span<const LossAlong> along) {
  std::optional<double> scale;
  for (auto point = along.rbegin(); point != along.rend() && !Holds(*point); ++point) {
    scale = point->scale;
  }
  return scale;
}

}  // namespace ptqwatch::internal
