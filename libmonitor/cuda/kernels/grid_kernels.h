#ifndef PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_

#include <cstdint>

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
};

/// The grids of a weight as in quantize/kernels/grid.h: scale and zero are [rows, groups].
struct GridShape {
  int64_t group_size = 0;
  int64_t groups = 0;
  int bits = 4;
  bool symmetric = true;
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;

  /// Divides in 32 bits: devices have no 64-bit division.
  PTQWATCH_HOST_DEVICE int64_t GroupOf(int64_t col) const {
    return static_cast<uint32_t>(col) / static_cast<uint32_t>(group_size);
  }
  PTQWATCH_HOST_DEVICE float Top() const { return static_cast<float>((1 << bits) - 1); }
};

/// One grid shape per layer.
struct Grids {
  GridShape at[kMaxBatch] = {};
};

/// Widens the first of `count` ranges to cover all of them.
PTQWATCH_HOST_DEVICE inline void Widest(int count, float* low, float* high) {
  for (int i = 1; i < count; ++i) {
    *low = low[i] < *low ? low[i] : *low;
    *high = high[i] > *high ? high[i] : *high;
  }
}

/// As FitGroup in quantize/kernels/grid.h. An overflow shows as an infinite scale.
PTQWATCH_HOST_DEVICE inline void FitGrid(const GridShape& grid, float low, float high, float* scale,
                                         float* zero) {
  if (grid.symmetric) {
    high = -low > high ? -low : high;
    low = -high;
  }
  if (!(high > low)) {
    low = -1;
    high = 1;
  }
  float exact = (high - low) / grid.Top();
  const float smallest = FloatFromBits(1);
  if (!(exact > smallest)) exact = smallest;
  const float rounded = RoundToDtype(exact, grid.scale_dtype);
  const float shift = rintf(-low / rounded) + 0.0f;
  *scale = rounded;
  *zero = grid.symmetric ? static_cast<float>(1 << (grid.bits - 1))
                         : (shift < grid.Top() ? shift : grid.Top());
}

/// Fits the grid of every group, as FitRow in quantize/kernels/grid.h. 32 threads per group. Cost:
/// one read of the weight.
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
  int64_t most_groups = 0;  ///< the maximum over the layers
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
      FitGrid(grid, *low, *high, &scale.at[layer][item], &zero.at[layer][item]);
    }
  }
};

/// Rounds to the nearest grid point, as RoundRow in quantize/kernels/grid.h. Each output may be
/// null:
///   codes, decoded  the code, and scale * (code - zero), divided by the channel scale if any
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
    for (int64_t i = 0; i < kPerThread; ++i) {
      const int64_t col = begin + i * kThreads;
      if (col < source.cols) RoundOne(layer, row, col);
    }
  }

 private:
  PTQWATCH_HOST_DEVICE void RoundOne(int64_t layer, int64_t row, int64_t col) const {
    const int64_t to = row * source.cols + col;
    const GridShape& grid = grids.at[layer];
    const int64_t g = row * grid.groups + grid.GroupOf(col);
    const float s = scale.at[layer][g];
    const float z = zero.at[layer][g];
    const float w = source.Number(layer, row, col);
    const float code = CodeOf(w, s, z, grid.Top());
    float value = s * (code - z);
    float original = w;
    if (source.channel_scale.first != nullptr) {
      value /= source.channel_scale.at(layer)[col];
      original = source.weight.at[layer][to];
    }
    if (codes.at[layer] != nullptr) codes.at[layer][to] = static_cast<uint8_t>(code);
    if (decoded.at[layer] != nullptr) decoded.at[layer][to] = value;
    if (error.first != nullptr) error.at(layer)[to] = original - value;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_GRID_KERNELS_H_
