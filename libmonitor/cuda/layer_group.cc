#include "cuda/layer_group.h"

#include <algorithm>

#include "base/status_macros.h"
#include "quantize/kernels/grid.h"
#include "quantize/kernels/number_format.h"

namespace ptqwatch::internal {

GridShape GridOf(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  const int64_t group = GroupSizeOf(spec, cols);
  return {.group_size = group,
          .groups = CeilDiv(cols, group),
          .group_rows = spec.group_rows < 0 ? rows : spec.group_rows,
          .bits = spec.bits,
          .symmetric = spec.symmetric,
          .lowest = spec.narrow_range ? 1 : 0,
          .scale_dtype = spec.scale_dtype,
          .least_scale = LeastScale(spec),
          .format = NumbersOf(spec),
          .scale_rule = spec.scale_rule};
}

int64_t LayerGroup::MostGroups() const {
  int64_t most = 0;
  for (int i = 0; i < layers; ++i) most = std::max(most, grids.at[i].groups);
  return most;
}

bool LayerGroup::AnyScale(GroupScale kind) const {
  return std::any_of(grids.at, grids.at + layers,
                     [&](const GridShape& grid) { return grid.format.scale == kind; });
}

GridSource LayerGroup::LiveSource() const {
  GridSource source = Source();
  source.diagonal = Const(diagonal);
  return source;
}

absl::Status LayerGroup::TakeShared(Arena& arena) {
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, layers, std::max(4 * kMostParts, cols), &partials));
  if (inputs == 0) return absl::OkStatus();
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, inputs, cols, &diagonal));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, inputs, cols, &position));
  diagonal.stride = position.stride = InputStride(cols);
  return absl::OkStatus();
}

int64_t ScaleCount(int64_t rows, int64_t cols, const GridShape& grid, const Method& method) {
  if (method.grid) return rows * grid.groups;
  return method.group_size < 0 ? rows : CeilDiv(rows * cols, method.group_size);
}

int64_t MostLayers(int64_t rows, int64_t cols) {
  constexpr int64_t kMostWeights = int64_t{1} << 25;
  return std::clamp<int64_t>(kMostWeights / (rows * cols), 1, kMaxBatch);
}

int64_t RowsPerProduct(int64_t rows, int64_t width, int64_t depth) {
  constexpr int64_t kMostMultiplyAdds = int64_t{1} << 34;
  constexpr int64_t kTile = 128;
  const int64_t fit = kMostMultiplyAdds / std::max<int64_t>(1, width * depth);
  return std::min(rows, std::max(kTile, fit / kTile * kTile));
}

int64_t PartsOf(int64_t size) { return std::clamp<int64_t>(CeilDiv(size, 4096), 1, kMostParts); }

}  // namespace ptqwatch::internal
