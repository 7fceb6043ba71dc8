#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "quantize/kernels/clip_search.h"
#include "quantize/layer.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {

namespace {

// Fits one grid to each block of grid.group_rows rows.
absl::StatusOr<bool> FitBlocks(MatrixView weight, int64_t block_rows, Grid* grid,
                               const ExecutionContext& context) {
  std::vector<Range> ranges(static_cast<size_t>(grid->groups));
  bool fits = true;
  for (int64_t first = 0; first < weight.rows; first += block_rows) {
    const int64_t rows = std::min(block_rows, weight.rows - first);
    std::fill(ranges.begin(), ranges.end(), Range());
    PTQWATCH_RETURN_IF_ERROR(ForEachRow(
        rows, weight.cols,
        [&](int64_t r) {
          for (int64_t g = 0; g < grid->groups; ++g) {
            const Range range = RangeOf(
                weight.data + (first + r) * weight.cols + grid->GroupBegin(g), grid->GroupCount(g));
            Range& block = ranges[static_cast<size_t>(g)];
            block = {.low = std::min(block.low, range.low),
                     .high = std::max(block.high, range.high)};
          }
        },
        context));
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t g = 0; g < grid->groups; ++g) {
        const Range& block = ranges[static_cast<size_t>(g)];
        fits = FitGroup(block.low, block.high, r, g, grid) && fits;
      }
    }
  }
  return fits;
}

}  // namespace

absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context) {
  if (grid->format->scale == GroupScale::kE4m3) {
    float largest = 0;
    PTQWATCH_RETURN_IF_ERROR(ForEachRow(
        weight.rows, weight.cols,
        [&](int64_t r) {
          const Range range = RangeOf(weight.data + r * weight.cols, weight.cols);
          largest = std::max(largest, range.largest());
        },
        context));
    SetTensorScale(largest, grid);
  }
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
  const int64_t block_rows = layer.spec.group_rows < 0 ? weight.rows : layer.spec.group_rows;
  if (block_rows != 1) return FitBlocks(weight, block_rows, grid, context);
  bool fits = true;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) { fits = FitRow(weight.data + r * weight.cols, r, grid) && fits; }, context));
  return fits;
}

absl::Status AddErrorParts(MatrixView weight, const Grid& grid, QuantizedWeight* result,
                           const ExecutionContext& context) {
  if (grid.format->scale != GroupScale::kE8m0) return absl::OkStatus();
  std::vector<float> rounded(static_cast<size_t>(weight.cols));
  ErrorSums sums;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const float* w = weight.data + r * weight.cols;
        RoundRow(grid, r, w, nullptr, rounded.data());
        AddErrors(grid, w, rounded.data(), &sums);
      },
      context));
  if (!(sums.weights > 0)) return absl::OkStatus();
  result->error_parts = {.dead_zone = sums.dead / sums.weights,
                         .grid_noise = sums.ideal / sums.weights,
                         .scale_bias = (sums.errors - sums.dead - sums.ideal) / sums.weights};
  return absl::OkStatus();
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
  if (layer.spec.baselines) {
    PTQWATCH_RETURN_IF_ERROR(AddErrorParts(weight, grid, &result, context));
  }
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  result.tensor_scale = grid.tensor_scale;
  return result;
}

const Method kRtnMethod = {
    .grid = true,
    .formats = true,
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
