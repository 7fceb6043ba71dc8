#include "quantize/rtn.h"

#include <utility>

#include "base/status_macros.h"
#include "quantize/fit_grid.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {

absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail,
                                               const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  QuantizedWeight result = WithStatus(status, std::move(detail));
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  PTQWATCH_ASSIGN_OR_RETURN(const bool fits,
                            FitGrid(layer, weight, &grid, &result.clipped_groups, context));
  if (!fits) return TooLargeForGrid(layer.spec);
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const int64_t begin = r * weight.cols;
        RoundRow(grid, r, layer.Row(r), result.codes.data() + begin,
                 result.dequantized.data() + begin);
      },
      context));
  const auto compute = [&] { return LayerLoss(layer, result.dequantized, context); };
  PTQWATCH_ASSIGN_OR_RETURN(result.loss,
                            layer.shared->RtnLoss(layer.spec, /*live_only=*/false, compute));
  result.rtn_loss = result.loss;
  PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  return result;
}

const Method kRtnMethod = {
    .grid = true,
    // Clipping weighs all inputs alike without them.
    .statistics =
        [](const QuantizerSpec& spec) {
          return StatisticsUse{.codes = spec.clip != ClipSearch::kNone};
        },
    .bytes = GridBytes,
    .flops = RoundingFlops,
    .quantize = [](const Layer& layer,
                   const ExecutionContext& context) -> absl::StatusOr<QuantizedWeight> {
      return RoundToNearest(layer, LayerStatus::kOk, "", context);
    },
};

}  // namespace ptqwatch::internal
