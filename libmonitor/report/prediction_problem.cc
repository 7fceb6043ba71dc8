#include "report/prediction_problem.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Standard errors by which another batch of the same size may differ.
constexpr double kSamplingErrors = 2;

}  // namespace

std::string PredictionProblem(const QuantizationReport& measured) {
  if (!measured.predicted_delta_nats || !measured.curvature_batch_delta_nats) return "";
  const double predicted = *measured.predicted_delta_nats;
  const double own = *measured.curvature_batch_delta_nats;
  const std::optional<double>& error = measured.curvature_batch_delta_stderr_nats;
  double miss = std::abs(predicted - own);
  if (measured.delta_nats) miss = std::max(miss, std::abs(predicted - *measured.delta_nats));
  const double total = std::hypot(miss, kSamplingErrors * error.value_or(0));
  if (total <= std::abs(predicted)) return "";
  std::string text = StrFormat(
      "the second-order prediction of %.2g nats is %.2g nats in error: its own batch gives %.2g",
      predicted, total, own);
  if (error) text += StrFormat(" (+-%.2g)", *error);
  if (measured.delta_nats) text += StrFormat(", the probe data %.2g", *measured.delta_nats);
  if (measured.routing_change_ratio.value_or(0) > 0) {
    text += StrFormat("; it does not see that %.2g %% of the routers' choices change",
                      100 * *measured.routing_change_ratio);
  }
  return text;
}

}  // namespace ptqwatch::internal
