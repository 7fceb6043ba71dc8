#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "quantize/kernels/clip_search.h"
#include "quantize/layer.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {

absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context) {
  if (layer.spec.clip == ClipSearch::kMse) {
    std::vector<double> importance(static_cast<size_t>(weight.cols), 1.0);
    for (int64_t c = 0; layer.h && c < weight.cols; ++c) {
      importance[static_cast<size_t>(c)] = layer.h->Diagonal(c);
    }
    PTQWATCH_ASSIGN_OR_RETURN(const ClipResult clipped,
                              FitClippedByImportance(weight, importance.data(), grid, context));
    *clipped_groups += clipped.groups;
    return clipped.fits;
  }
  bool fits = true;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) { fits = FitRow(weight.data + r * weight.cols, r, grid) && fits; }, context));
  return fits;
}

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
    // Without statistics, clipping weighs all inputs equally.
    .statistics =
        [](const QuantizerSpec& spec) {
          return spec.clip == ClipSearch::kNone ? Statistics::kNone : Statistics::kGramIfAny;
        },
    .bytes = GridBytes,
    .quantize = [](const Layer& layer,
                   const ExecutionContext& context) -> absl::StatusOr<QuantizedWeight> {
      return RoundToNearest(layer, LayerStatus::kOk, "", context);
    },
};

}  // namespace ptqwatch::internal
