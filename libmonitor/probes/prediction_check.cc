#include "probes/prediction_check.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

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
  const double predicted = error.predicted_delta_nats;
  const double sampling = kLikelyErrors * error.delta_stderr_nats.value_or(0);
  double miss = std::abs(predicted - error.delta_nats);
  if (measured.delta_nats) miss = std::max(miss, std::abs(predicted - *measured.delta_nats));
  const double total = std::hypot(miss, sampling);
  if (total <= std::abs(predicted)) return "";
  std::string text = StrFormat(
      "the second-order prediction of %.2g nats is %.2g nats in error: its own batch gives %.2g",
      predicted, total, error.delta_nats);
  if (error.delta_stderr_nats) text += StrFormat(" (+-%.2g)", *error.delta_stderr_nats);
  if (measured.delta_nats) text += StrFormat(", the probe data %.2g", *measured.delta_nats);
  return text;
}

std::optional<double> BeyondQuadratic(absl::Span<const LossAlong> along) {
  std::optional<double> scale;
  for (auto point = along.rbegin(); point != along.rend() && !Holds(*point); ++point) {
    scale = point->scale;
  }
  return scale;
}

}  // namespace ptqwatch::internal
