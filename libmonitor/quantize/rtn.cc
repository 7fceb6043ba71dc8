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

// Sets NVFP4's scale for the whole tensor.
absl::Status FitTensor(MatrixView weight, Grid* grid, const ExecutionContext& context) {
  if (grid->format->scale != GroupScale::kE4m3) return absl::OkStatus();
  float largest = 0;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        largest = std::max(largest, LargestOf(weight.data + r * weight.cols, weight.cols));
      },
      context));
  SetTensorScale(largest, grid);
  return absl::OkStatus();
}

// Whether the scales of a row depend on that row alone, once FitTensor has run.
bool FitsByRow(const QuantizerSpec& spec) {
  return spec.clip != ClipSearch::kMse && spec.group_rows == 1;
}

}  // namespace

absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(FitTensor(weight, grid, context));
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
  if (layer.spec.group_rows != 1) {
    const int64_t block_rows = layer.spec.group_rows < 0 ? weight.rows : layer.spec.group_rows;
    return FitBlocks(weight, block_rows, grid, context);
  }
  bool fits = true;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        fits = FitRow(weight.data + r * weight.cols, r, grid, clipped_groups) && fits;
      },
      context));
  return fits;
}

bool HasErrorParts(const Grid& grid, const QuantizerSpec& spec) {
  return spec.baselines && grid.format->scale == GroupScale::kE8m0;
}

void SetErrorParts(const ErrorSums& sums, QuantizedWeight* result) {
  if (!(sums.weights > 0)) return;
  result->error_parts = {.dead_zone = sums.dead / sums.weights,
                         .grid_noise = sums.ideal / sums.weights,
                         .scale_bias = (sums.errors - sums.ideal) / sums.weights};
}

absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail,
                                               const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  QuantizedWeight result = WithStatus(status, std::move(detail));
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  bool fits = true;
  const bool by_row = FitsByRow(layer.spec);
  if (by_row) {
    PTQWATCH_RETURN_IF_ERROR(FitTensor(weight, &grid, context));
  } else {
    PTQWATCH_ASSIGN_OR_RETURN(fits, FitGrid(layer, weight, &grid, &result.clipped_groups, context));
  }
  // A row is fitted, rounded and compared while the cache has it, and then appended: memory that is
  // resized first would be written twice.
  const bool parts = HasErrorParts(grid, layer.spec);
  ErrorSums sums;
  std::vector<uint8_t> codes(static_cast<size_t>(weight.cols));
  std::vector<float> values(static_cast<size_t>(weight.cols));
  ReserveWeights(layer, &result);
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const float* w = layer.Row(r);
        if (by_row) fits = FitRow(w, r, &grid, &result.clipped_groups) && fits;
        if (layer.spec.round_scale_last) {
          fits = RoundRowBeforeScale(layer.spec.scale_dtype, r, w, &grid, codes.data(),
                                     values.data()) &&
                 fits;
        } else {
          RoundRow(grid, r, w, codes.data(), values.data());
        }
        if (parts) AddErrors(grid, r, w, values.data(), &sums);
        result.codes.insert(result.codes.end(), codes.begin(), codes.end());
        result.dequantized.insert(result.dequantized.end(), values.begin(), values.end());
      },
      context));
  if (!fits) return TooLargeForGrid(layer.spec);
  if (parts) SetErrorParts(sums, &result);
  const auto compute = [&] { return LayerLoss(layer, result.dequantized, context); };
  PTQWATCH_ASSIGN_OR_RETURN(result.loss,
                            layer.shared->RtnLoss(layer.spec, /*live_only=*/false, compute));
  result.rtn_loss = result.loss;
  PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  result.tensor_scale = grid.tensor_scale;
  return result;
}

const Method kRtnMethod = {
    .grid = true,
    .formats = true,
    .finds_non_finite = true,
    // Without statistics, the clip search weighs all inputs equally.
    .statistics =
        [](const QuantizerSpec& spec) {
          return spec.clip == ClipSearch::kMse ? Statistics::kGramIfAny : Statistics::kNone;
        },
    .bytes = GridBytes,
    .quantize = [](const Layer& layer,
                   const ExecutionContext& context) -> absl::StatusOr<QuantizedWeight> {
      return RoundToNearest(layer, LayerStatus::kOk, "", context);
    },
};

}  // namespace ptqwatch::internal
