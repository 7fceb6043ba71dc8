#ifndef PTQWATCH_CUDA_KERNELS_GPTQ_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_GPTQ_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// The number of columns quantized together.
inline constexpr int kGptqBlock = 128;

/// Writes the weight transposed, in the order in which columns are handled: out[k, row]. Square
/// tiles make both reads and writes coalesced.
struct PackWeight {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kTile = 32;
  struct Shared {
    float tile[kTile][kTile + 1];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  Strided<const int32_t> position = {};
  Strided<float> out = {};  ///< [cols, rows]

  PTQWATCH_HOST_DEVICE int64_t RowTiles() const { return CeilDiv(source.rows, kTile); }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const {
    return RowTiles() * CeilDiv(source.cols, kTile);
  }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t r0 = at.block % BlocksPerLayer() % RowTiles() * kTile;
    const int64_t c0 = at.block % BlocksPerLayer() / RowTiles() * kTile;
    const int fast = at.thread % kTile;
    for (int slow = at.thread / kTile; slow < kTile; slow += kThreads / kTile) {
      if constexpr (kPhase == 0) {
        if (r0 + slow < source.rows && c0 + fast < source.cols) {
          shared.tile[slow][fast] = source.Number(layer, r0 + slow, c0 + fast);
        }
      } else if (c0 + slow < source.cols && r0 + fast < source.rows) {
        const int64_t k = position.at(layer)[c0 + slow];
        out.at(layer)[k * source.rows + r0 + fast] = shared.tile[fast][slow];
      }
    }
  }
};

/// Quantizes a block of columns by the recurrence of quantize/kernels/gptq_loop.h. One thread per
/// row. The block's ratios and its rows' errors are in shared memory, sixteen columns at a time in
/// registers. Cost: rows * 128^2 multiply-adds and 128 sequential divisions.
struct QuantizeBlock {
  static constexpr int kRows = 64;
  static constexpr int kThreads = kRows;
  static constexpr int kPhases = 2;
  static constexpr int kTogether = 16;
  struct Shared {
    float ratios[kGptqBlock][kGptqBlock];  // [j][k], j < k
    float delta[kGptqBlock][kRows];        // w - q
    double weight[kGptqBlock];             // R[k, k]^2
    int32_t group[kGptqBlock];
  };
  static_assert(sizeof(Shared) <= 99 * 1024);
  using Local = Nothing;

  int layers = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first = 0;  ///< first column, in handling order; a multiple of 128
  Grids grids = {};
  int64_t padded = 0;
  Strided<const float> ratios = {};     ///< [padded, padded]
  Strided<const double> diagonal = {};  ///< [cols]
  PerLayer<const int32_t> order = {};   ///< [cols], per factor
  int64_t factor_of_layer = 0;          ///< 1: one factor per layer; 0: all share one
  Strided<const float> updates = {};    ///< [128, rows]; unused if `first` is 0
  PerLayer<const float> scale = {};
  PerLayer<const float> zero = {};
  Strided<float> delta = {};      ///< [cols, rows]: input w, output w - q
  Strided<uint8_t> codes = {};    ///< [cols, rows]
  Strided<double> row_loss = {};  ///< [rows]: overwritten if `first` is 0, else added to
  Strided<double> row_norm = {};  ///< [rows]: the same for |dW|^2

  PTQWATCH_HOST_DEVICE int64_t Tiles() const { return CeilDiv(rows, kRows); }
  int64_t Blocks() const { return layers * Tiles(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / Tiles();
    const int count = static_cast<int>(AtMost(kGptqBlock, cols - first));
    if constexpr (kPhase == 0) {
      Load(layer, count, at.thread, shared);
    } else {
      const int64_t row = at.block % Tiles() * kRows + at.thread;
      if (row >= rows) return;
      const GridShape& grid = grids.at[layer];
      if (grid.format.is_float()) {
        QuantizeRow(FloatPoints(grid), layer, row, count, at.thread, shared);
      } else {
        QuantizeRow(IntegerPoints(grid), layer, row, count, at.thread, shared);
      }
    }
  }

 private:
  struct alignas(16) Four {
    float value[4];
  };

  PTQWATCH_HOST_DEVICE void Load(int64_t layer, int count, int thread, Shared& shared) const {
    const float* from = ratios.at(layer) + first * padded + first;
    constexpr int kQuads = kGptqBlock / 4;
    PTQWATCH_UNROLL
    for (int i = 0; i < kGptqBlock * kQuads / kThreads; ++i) {
      const int j = (i * kThreads + thread) / kQuads;
      const int k = (i * kThreads + thread) % kQuads * 4;
      *reinterpret_cast<Four*>(&shared.ratios[j][k]) =
          *reinterpret_cast<const Four*>(from + j * padded + k);
    }
    for (int k = thread; k < count; k += kThreads) {
      const double r = diagonal.at(layer)[first + k];
      shared.weight[k] = r * r;
      shared.group[k] = static_cast<int32_t>(order.at[layer * factor_of_layer][first + k] /
                                             grids.at[layer].group_size);
    }
  }

  template <class Points>
  PTQWATCH_HOST_DEVICE void QuantizeRow(const Points& points, int64_t layer, int64_t row, int count,
                                        int thread, Shared& shared) const {
    const int64_t groups = grids.at[layer].groups;
    double loss = 0;
    double norm = 0;
    for (int s = 0; s < count; s += kTogether) {
      float original[kTogether];
      float current[kTogether];
      float step[kTogether];
      float z[kTogether];
      // Issues all reads before the first write, so that they overlap.
      PTQWATCH_UNROLL
      for (int c = 0; c < kTogether; ++c) {
        const int64_t k = first + s + c;
        const int64_t g = row * groups + (s + c < count ? shared.group[s + c] : 0);
        step[c] = scale.at[layer][g];
        z[c] = zero.at[layer][g];
        original[c] = s + c < count ? delta.at(layer)[k * rows + row] : 0.0f;
        current[c] = original[c];
        if (first > 0 && s + c < count) {
          current[c] += updates.at(layer)[(s + c) * rows + row];
        }
      }
      for (int j = 0; j < s; ++j) {
        const float d = shared.delta[j][thread];
        PTQWATCH_UNROLL
        for (int c = 0; c < kTogether; ++c) {
          current[c] = fmaf(d, shared.ratios[j][s + c], current[c]);
        }
      }
      PTQWATCH_UNROLL
      for (int c = 0; c < kTogether; ++c) {
        if (s + c >= count) break;
        const float w = current[c];
        uint8_t code;
        const float q = points.Round(w, step[c], z[c], &code);
        const float d = original[c] - q;
        PTQWATCH_UNROLL
        for (int later = c + 1; later < kTogether; ++later) {
          current[later] = fmaf(d, shared.ratios[s + c][s + later], current[later]);
        }
        const double miss = static_cast<double>(w - q);
        loss += miss * miss * shared.weight[s + c];
        norm += static_cast<double>(d) * static_cast<double>(d);
        shared.delta[s + c][thread] = d;
        delta.at(layer)[(first + s + c) * rows + row] = d;
        codes.at(layer)[(first + s + c) * rows + row] = code;
      }
    }
    row_loss.at(layer)[row] = (first > 0 ? row_loss.at(layer)[row] : 0) + loss;
    row_norm.at(layer)[row] = (first > 0 ? row_norm.at(layer)[row] : 0) + norm;
  }
};

/// Writes codes and decoded weights in their original places. Square tiles.
struct UnpackCodes {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kTile = 32;
  struct Shared {
    uint8_t tile[kTile][kTile + 4];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  Grids grids = {};
  Strided<const int32_t> position = {};
  Strided<const uint8_t> packed = {};  ///< [cols, rows]
  PerLayer<const float> scale = {};
  PerLayer<const float> zero = {};
  PerLayer<uint8_t> codes = {};  ///< [rows, cols]
  PerLayer<float> decoded = {};  ///< [rows, cols]

  PTQWATCH_HOST_DEVICE int64_t RowTiles() const { return CeilDiv(rows, kTile); }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const { return RowTiles() * CeilDiv(cols, kTile); }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t r0 = at.block % BlocksPerLayer() % RowTiles() * kTile;
    const int64_t c0 = at.block % BlocksPerLayer() / RowTiles() * kTile;
    const int fast = at.thread % kTile;
    for (int slow = at.thread / kTile; slow < kTile; slow += kThreads / kTile) {
      if constexpr (kPhase == 0) {
        if (c0 + slow < cols && r0 + fast < rows) {
          const int64_t k = position.at(layer)[c0 + slow];
          shared.tile[slow][fast] = packed.at(layer)[k * rows + r0 + fast];
        }
      } else if (r0 + slow < rows && c0 + fast < cols) {
        const int64_t row = r0 + slow;
        const int64_t col = c0 + fast;
        const uint8_t code = shared.tile[fast][slow];
        const GridShape& grid = grids.at[layer];
        const int64_t g = row * grid.groups + grid.GroupOf(col);
        codes.at[layer][row * cols + col] = code;
        decoded.at[layer][row * cols + col] =
            grid.format.is_float()
                ? FloatPoints(grid).Decode(code, scale.at[layer][g], 0)
                : IntegerPoints(grid).Decode(code, scale.at[layer][g], zero.at[layer][g]);
      }
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_GPTQ_KERNELS_H_
