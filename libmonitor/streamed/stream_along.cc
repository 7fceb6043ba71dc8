#include "streamed/stream_along.h"

#include <cmath>
#include <optional>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/add.h"
#include "ATen/ops/sub.h"
#include "base/status_macros.h"
#include "probes/loss_pairs.h"
#include "streamed/weight_copies.h"

namespace ptqwatch::internal {
namespace {

absl::StatusOr<LossAlong> ComparePoint(double scale, absl::Span<const UnitLosses> full,
                                       absl::Span<const UnitLosses> losses) {
  LossAlong point{.scale = scale};
  LossPairs pairs;
  for (size_t batch = 0; batch < full.size(); ++batch) {
    const absl::Status status = pairs.Add(full[batch], losses[batch]);
    if (absl::IsDataLoss(status)) return point;
    PTQWATCH_RETURN_IF_ERROR(status);
  }
  const RatioEstimate change = pairs.Change();
  point.delta_nats = change.value;
  if (std::isfinite(change.stderr_value)) point.delta_stderr_nats = change.stderr_value;
  return point;
}

}  // namespace

std::vector<at::Tensor> WeightsAlong(const std::vector<at::Tensor>& weights,
                                     const std::vector<at::Tensor>& quantized, double scale) {
  at::NoGradGuard no_grad;
  WeightCopies memory(weights);
  std::vector<at::Tensor> along;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (quantized[i].is_same(weights[i])) {
      along.push_back(weights[i]);
      continue;
    }
    at::Tensor moved = memory.Empty(i);
    at::sub_out(moved, quantized[i], weights[i]);
    at::add_out(moved, weights[i], moved, scale);
    along.push_back(std::move(moved));
  }
  return along;
}

absl::StatusOr<std::vector<LossAlong>> CompareAlong(
    absl::Span<const UnitLosses> full, const std::map<double, std::vector<UnitLosses>>& along) {
  std::vector<LossAlong> points;
  std::optional<double> half;
  std::optional<double> whole;
  for (const auto& [scale, losses] : along) {
    PTQWATCH_ASSIGN_OR_RETURN(const LossAlong point, ComparePoint(scale, full, losses));
    if (scale == 0.5) half = point.delta_nats;
    if (scale == 1) whole = point.delta_nats;
    points.push_back(point);
  }
  if (!half || !whole) return points;
  // d(a) = slope a + bend a^2 through d(1/2) and d(1).
  const double slope = 4 * *half - *whole;
  const double bend = 2 * *whole - 4 * *half;
  for (LossAlong& point : points) {
    point.predicted_delta_nats = slope * point.scale + bend * point.scale * point.scale;
  }
  return points;
}

std::optional<double> SharpnessAlong(absl::Span<const LossAlong> along, double norm) {
  std::map<double, double> at;
  for (const LossAlong& point : along) {
    if (point.predicted_delta_nats) at[point.scale] = *point.predicted_delta_nats;
  }
  if (!at.contains(0.5) || !at.contains(1)) return std::nullopt;
  const double sharpness = (4 * at[1] - 8 * at[0.5]) / (norm * norm);
  if (!(sharpness > 0 && std::isfinite(sharpness))) return std::nullopt;
  return sharpness;
}

}  // namespace ptqwatch::internal
