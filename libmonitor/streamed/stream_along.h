#ifndef PTQWATCH_STREAMED_STREAM_ALONG_H_
#define PTQWATCH_STREAMED_STREAM_ALONG_H_

#include <map>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/report.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// The points W + a d along a quantization error d = W_hat - W through which streams of their own
/// are sent, beside W_hat itself at a = 1.
inline constexpr double kStreamScales[] = {0.5, 1.5};

/// The weights of a block at a point, with a copy of each that quantization changes. May throw.
std::vector<at::Tensor> WeightsAlong(const std::vector<at::Tensor>& weights,
                                     const std::vector<at::Tensor>& quantized, double scale);

/// The losses along an error, from those at W, `full`, and those at each scale, which must include
/// 0.5 and 1. The prediction is the parabola through the losses at 0, 0.5 and 1: without a gradient
/// it shows at 1.5 whether the loss is a quadratic. A loss that is not finite has no numbers.
/// Errors as LossPairs::Add.
absl::StatusOr<std::vector<LossAlong>> CompareAlong(
    absl::Span<const UnitLosses> full, const std::map<double, std::vector<UnitLosses>>& along);

/// The critical sharpness of the parabola that predicts losses along an error of this norm: its
/// curvature. nullopt without a prediction or a positive curvature.
std::optional<double> SharpnessAlong(absl::Span<const LossAlong> along, double norm);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_STREAM_ALONG_H_
