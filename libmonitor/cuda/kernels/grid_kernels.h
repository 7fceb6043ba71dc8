#ifndef PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_

#include <cstdint>

#include "cuda/kernels/grid_points.h"
#include "cuda/kernels/kernel.h"
#include "cuda/kernels/scalars.h"

namespace ptqwatch::internal {

/// The source of the numbers on a grid: a weight, [rows, cols], with some columns changed.
struct GridSource {
  int64_t rows = 0;
  int64_t cols = 0;
  PerLayer<const float> weight = {};
  /// If `first` is not null, columns whose diag(H) is 0 count as zeros.
  Strided<const double> diagonal = {};
  /// If `first` is not null, each column is multiplied by its scale.
  Strided<const float> channel_scale = {};

  PTQWATCH_HOST_DEVICE float Number(int64_t layer, int64_t row, int64_t col) const {
    if (diagonal.first != nullptr && diagonal.at(layer)[col] == 0) return 0;
    const float w = weight.at[layer][row * cols + col];
    return channel_scale.first != nullptr ? w * channel_scale.at(layer)[col] : w;
  }
  PTQWATCH_HOST_DEVICE int64_t size() const { return rows * cols; }
  /// min(w, 0) and max(w, 0) over every `spacing`-th number from `begin` on.
  PTQWATCH_HOST_DEVICE void Range(int64_t layer, int64_t row, int64_t begin, int64_t end,
                                  int spacing, float* low, float* high) const {
    float least = 0;
    float most = 0;
    for (int64_t c = begin; c < end; c += spacing) {
      const float w = Number(layer, row, c);
      least = w < least ? w : least;
      most = w > most ? w : most;
    }
    *low = least;
    *high = most;
  }
  /// max|w| over the same numbers.
  PTQWATCH_HOST_DEVICE float Largest(int64_t layer, int64_t row, int64_t begin, int64_t end,
                                     int spacing) const {
    float low = 0;
    float high = 0;
    Range(layer, row, begin, end, spacing, &low, &high);
    return Larger(-low, high);
  }
};

/// Widens the first of `count` ranges to cover all of them.
PTQWATCH_HOST_DEVICE inline void Widest(int count, float* low, float* high) {
  for (int i = 1; i < count; ++i) {
    *low = low[i] < *low ? low[i] : *low;
    *high = high[i] > *high ? high[i] : *high;
  }
}

/// Fits the grid of every group, as FitRow in quantize/kernels/grid.h. 32 threads per group. Cost:
/// one read of the weight. If rows share scales, writes the ends of the range instead, low ones to
/// `scale` and high ones to `zero`.
struct FitGroups {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 2;
  static constexpr int kLanes = 32;
  struct Shared {
    float low[kThreads];
    float high[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  Grids grids = {};
  int64_t most_groups = 0;              ///< the maximum over the layers
  PerLayer<const double> numbers = {};  ///< for formats with a scale for the tensor
  PerLayer<float> scale = {};
  PerLayer<float> zero = {};

  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const {
    return CeilDiv(source.rows * most_groups, kThreads / kLanes);
  }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t item = at.block % BlocksPerLayer() * (kThreads / kLanes) + at.thread / kLanes;
    const GridShape& grid = grids.at[layer];
    if (item >= source.rows * grid.groups) return;
    if constexpr (kPhase == 0) {
      const int64_t row = item / grid.groups;
      const int64_t begin = item % grid.groups * grid.group_size;
      const int64_t end = AtMost(source.cols, begin + grid.group_size);
      source.Range(layer, row, begin + at.thread % kLanes, end, kLanes, &shared.low[at.thread],
                   &shared.high[at.thread]);
    } else if (at.thread % kLanes == 0) {
      float* low = &shared.low[at.thread];
      float* high = &shared.high[at.thread];
      Widest(kLanes, low, high);
      if (grid.group_rows != 1) {
        scale.at[layer][item] = *low;
        zero.at[layer][item] = *high;
        return;
      }
      FitWholeGrid(grid, TensorFactorOf(grid, numbers.at[layer]), *low, *high,
                   &scale.at[layer][item], &zero.at[layer][item]);
    }
  }
};

/// Fits the grids that rows share, from the ranges that FitGroups wrote. 32 threads per group of a
/// block of rows. Layers in which rows share none stay as they are.
struct FitBlocks {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 2;
  static constexpr int kLanes = 32;
  struct Shared {
    float low[kThreads];
    float high[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t rows = 0;
  Grids grids = {};
  int64_t most_items = 0;  ///< the maximum of Items over the layers
  PerLayer<float> scale = {};
  PerLayer<float> zero = {};

  PTQWATCH_HOST_DEVICE static int64_t Items(int64_t rows, const GridShape& grid) {
    return grid.group_rows == 1 ? 0 : CeilDiv(rows, grid.group_rows) * grid.groups;
  }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const {
    return CeilDiv(most_items, kThreads / kLanes);
  }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t item = at.block % BlocksPerLayer() * (kThreads / kLanes) + at.thread / kLanes;
    const GridShape& grid = grids.at[layer];
    if (item >= Items(rows, grid)) return;
    const int64_t begin = item / grid.groups * grid.group_rows;
    const int64_t end = AtMost(rows, begin + grid.group_rows);
    const int lane = at.thread % kLanes;
    float* const s = scale.at[layer] + item % grid.groups;
    float* const z = zero.at[layer] + item % grid.groups;
    float low = 0;
    float high = 0;
    if constexpr (kPhase == 0) {
      for (int64_t row = begin + lane; row < end; row += kLanes) {
        low = s[row * grid.groups] < low ? s[row * grid.groups] : low;
        high = Larger(high, z[row * grid.groups]);
      }
      shared.low[at.thread] = low;
      shared.high[at.thread] = high;
    } else {
      for (int i = at.thread - lane; i < at.thread - lane + kLanes; ++i) {
        low = shared.low[i] < low ? shared.low[i] : low;
        high = Larger(high, shared.high[i]);
      }
      // Formats with a scale for the tensor have single rows.
      float fitted = 0;
      float shift = 0;
      FitWholeGrid(grid, 0, low, high, &fitted, &shift);
      for (int64_t row = begin + lane; row < end; row += kLanes) {
        s[row * grid.groups] = fitted;
        z[row * grid.groups] = shift;
      }
    }
  }
};

/// Rounds to the nearest grid point, as RoundRow in quantize/kernels/grid.h. Each output may be
/// null:
///   codes, decoded  the code, and the grid point, divided by the channel scale if any
///   error           [rows, cols]: the number minus its rounded value; with a channel scale, the
///                   weight minus the decoded weight
struct RoundGroups {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  static constexpr int64_t kPerThread = 4;
  using Shared = Nothing;
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  Grids grids = {};
  PerLayer<const float> scale = {};
  PerLayer<const float> zero = {};
  PerLayer<uint8_t> codes = {};
  PerLayer<float> decoded = {};
  Strided<float> error = {};

  PTQWATCH_HOST_DEVICE int64_t Strips() const {
    return CeilDiv(source.cols, kThreads * kPerThread);
  }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const { return source.rows * Strips(); }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t row = at.block % BlocksPerLayer() / Strips();
    const int64_t begin = at.block % Strips() * kThreads * kPerThread + at.thread;
    const GridShape& grid = grids.at[layer];
    if (grid.format.is_float()) {
      RoundSome(FloatPoints(grid), grid, layer, row, begin);
    } else {
      RoundSome(IntegerPoints(grid), grid, layer, row, begin);
    }
  }

 private:
  template <class Points>
  PTQWATCH_HOST_DEVICE void RoundSome(const Points& points, const GridShape& grid, int64_t layer,
                                      int64_t row, int64_t begin) const {
    for (int64_t i = 0; i < kPerThread; ++i) {
      const int64_t col = begin + i * kThreads;
      if (col < source.cols) RoundOne(points, grid, layer, row, col);
    }
  }

  template <class Points>
  PTQWATCH_HOST_DEVICE void RoundOne(const Points& points, const GridShape& grid, int64_t layer,
                                     int64_t row, int64_t col) const {
    const int64_t to = row * source.cols + col;
    const int64_t g = row * grid.groups + grid.GroupOf(col);
    const float w = source.Number(layer, row, col);
    uint8_t code;
    float value = points.Round(w, scale.at[layer][g], zero.at[layer][g], &code);
    float original = w;
    if (source.channel_scale.first != nullptr) {
      value /= source.channel_scale.at(layer)[col];
      original = source.weight.at[layer][to];
    }
    if (codes.at[layer] != nullptr) codes.at[layer][to] = code;
    if (decoded.at[layer] != nullptr) decoded.at[layer][to] = value;
    if (error.first != nullptr) error.at(layer)[to] = original - value;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_
