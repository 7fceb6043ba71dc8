#include <utility>
#include <vector>

#include "base/strings.h"
#include "quantize/clip_search.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {

QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec) {
  return WithStatus(LayerStatus::kUnsupported, StrCat("a weight is too large for a grid with ",
                                                      ToString(spec.scale_dtype), " scales"));
}

absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context) {
  if (layer.spec.clip == ClipSearch::kMse) {
    std::vector<double> importance(static_cast<size_t>(weight.cols), 1.0);
    for (int64_t c = 0; layer.h && c < weight.cols; ++c) {
      importance[static_cast<size_t>(c)] = layer.h->Diagonal(c);
    }
    absl::StatusOr<ClipResult> clipped =
        FitClippedByImportance(weight, importance.data(), grid, context);
    if (!clipped.ok()) return clipped.status();
    *clipped_groups = clipped->groups;
    return clipped->fits;
  }
  bool fits = true;
  absl::Status status = ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) { fits = FitRow(weight.data + r * weight.cols, r, grid) && fits; }, context);
  if (!status.ok()) return status;
  return fits;
}

absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail,
                                               const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  QuantizedWeight result = WithStatus(status, std::move(detail));
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  absl::StatusOr<bool> fits = FitGrid(layer, weight, &grid, &result.clipped_groups, context);
  if (!fits.ok()) return fits.status();
  if (!*fits) return TooLargeForGrid(layer.spec);
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  absl::Status done = ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const int64_t begin = r * weight.cols;
        RoundRow(grid, r, layer.Row(r), result.codes.data() + begin,
                 result.dequantized.data() + begin);
      },
      context);
  if (!done.ok()) return done;
  absl::StatusOr<std::optional<double>> loss = LayerLoss(layer, result.dequantized, context);
  if (!loss.ok()) return loss.status();
  result.loss = result.rtn_loss = *loss;
  if (done = AddOutputEnergy(layer, &result, context); !done.ok()) return done;
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  return result;
}

}  // namespace ptqwatch::internal
