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

/// Quantizes a block of columns by the recurrence of quantize/kernels/gptq_loop.h, sixteen columns
/// at a time. The block's ratios and its rows' errors are in shared memory. One thread per row
/// rounds; that chain of 128 divisions bounds the cost. Meanwhile four others per row, with four
/// columns each, write out the columns before and add up the products for the columns after.
struct QuantizeBlock {
  static constexpr int kRows = 32;
  static constexpr int kTogether = 16;
  static constexpr int kOwn = 4;  ///< columns of a thread that does not round
  static constexpr int kThreads = kRows * (1 + kTogether / kOwn);
  static constexpr int kPhases = 2 * (kGptqBlock / kTogether) + 2;
  struct alignas(16) Four {
    float value[4];
  };
  struct alignas(16) Staged {
    float original;
    float current;  // w, in the end
    float scale;
    float zero;
  };
  struct Shared {
    float ratios[kGptqBlock][kGptqBlock];  // [j][k], j < k
    Staged staged[kTogether][kRows];       // the columns to round
    float delta[kGptqBlock][kRows];        // w - q
    double weight[kGptqBlock];             // R[k, k]^2
    int32_t group[kGptqBlock];
    // They hold the columns that are rounded and the ones before, in turn.
    float miss[2][kTogether][kRows];
    uint8_t codes[2][kTogether][kRows];
  };
  static_assert(sizeof(Shared) <= 99 * 1024);
  struct Local {
    int layer;
    int64_t row;
    Staged staged[kOwn];
    double sum;  // of the row's loss or norm
  };

  int layers = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first = 0;  ///< first column, in handling order; a multiple of 128
  Grids grids = {};
  int64_t padded = 0;
  Strided<const float> ratios = {};     ///< [padded, padded]; zeros beyond `cols`
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
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local& local) const {
    RunPhase(kPhase, at, shared, local);
  }
  PTQWATCH_HOST_DEVICE void RunPhase(int phase, Place at, Shared& shared, Local& local) const {
    const int count = static_cast<int>(AtMost(kGptqBlock, cols - first));
    const int lane = at.thread % kRows;
    const int helper = at.thread / kRows - 1;
    if (phase == 0) {
      // Divides in 32 bits: devices have no 64-bit division.
      const uint32_t tiles = static_cast<uint32_t>(Tiles());
      const uint32_t block = static_cast<uint32_t>(at.block);
      local.layer = static_cast<int>(block / tiles);
      local.row = static_cast<int64_t>(block % tiles) * kRows + lane;
      local.sum = 0;
      if (helper < 0) {
        LoadColumns(local.layer, count, lane, shared);
        return;
      }
      LoadRatios(local.layer, helper, lane, shared);
      if (local.row >= rows) return;
      int32_t group[kOwn];
      PTQWATCH_UNROLL
      for (int c = 0; c < kOwn; ++c) group[c] = GroupAt(local.layer, helper * kOwn + c);
      Begin(0, helper * kOwn, group, count, local);
      return;
    }
    // Column `s` is the first of those that are rounded in the next phase, or in this one.
    const int s = (phase - 1) / 2 * kTogether;
    if (local.row >= rows || s >= count + kTogether) return;
    if (phase % 2 == 1) {
      if (helper < 0) return;
      if (s < count) {
        Publish(s, helper * kOwn, lane, shared, local);
      } else {
        Finish(s - kTogether, helper, lane, count, shared, local);
        Total(helper, local);
      }
    } else if (s < count) {
      if (helper < 0) {
        const GridShape& grid = grids.at[local.layer];
        if (grid.format.is_float()) {
          Round(FloatPoints(grid), s, lane, shared);
        } else {
          Round(IntegerPoints(grid), s, lane, shared);
        }
        return;
      }
      const int next = s + kTogether;
      if (next < count) {
        Begin(next, helper * kOwn, &shared.group[next + helper * kOwn], count, local);
      }
      if (s > 0) Finish(s - kTogether, helper, lane, count, shared, local);
      if (next < count) {
        for (int j = 0; j < s; j += kTogether) Add(j, next + helper * kOwn, lane, shared, local);
      }
    }
  }

 private:
  // Columns beyond the last count as the last one, so that no read waits for a branch.
  PTQWATCH_HOST_DEVICE int32_t GroupAt(int64_t layer, int k) const {
    const int32_t column = order.at[layer * factor_of_layer][AtMost(first + k, cols - 1)];
    return static_cast<int32_t>(grids.at[layer].GroupOf(column));
  }

  PTQWATCH_HOST_DEVICE void LoadRatios(int64_t layer, int helper, int lane, Shared& shared) const {
    constexpr int kLines = kTogether / kOwn;
    static_assert(kRows * 4 == kGptqBlock && kLines % 4 == 0);
    const float* from = ratios.at(layer) + (first + helper) * padded + first;
    PTQWATCH_NO_UNROLL
    for (int begin = 0; begin < kGptqBlock; begin += kGptqBlock / 2) {
      PTQWATCH_UNROLL
      for (int j = 0; j < kGptqBlock / 2; j += kLines) {
        // Left of the diagonal nothing is used: there it reads again the numbers right of it.
        const int i = begin + j;
        const int k = lane * 4 < i ? i : lane * 4;
        *reinterpret_cast<Four*>(&shared.ratios[i + helper][lane * 4]) =
            *reinterpret_cast<const Four*>(from + i * padded + k);
      }
    }
  }

  PTQWATCH_HOST_DEVICE void LoadColumns(int64_t layer, int count, int lane, Shared& shared) const {
    PTQWATCH_UNROLL
    for (int i = 0; i < kGptqBlock; i += kRows) {
      const int k = i + lane;
      const double r = diagonal.at(layer)[AtMost(first + k, cols - 1)];
      shared.weight[k] = k < count ? r * r : 0;
      shared.group[k] = GroupAt(layer, k);
    }
  }

  // Reads the thread's columns, `own` and following of those from `s` on.
  PTQWATCH_HOST_DEVICE void Begin(int s, int own, const int32_t* group, int count,
                                  Local& local) const {
    const int64_t layer = local.layer;
    const int64_t at = local.row + (first + s + own) * rows;
    const int64_t update_at = local.row + (s + own) * rows;
    const int64_t row_groups = local.row * grids.at[layer].groups;
    const float* scales = scale.at[layer] + row_groups;
    const float* zeros = zero.at[layer] + row_groups;
    float update[kOwn];
    bool same[kOwn];
    // A warp's read of scales is one of 32 lines, so none is read twice in a row.
    PTQWATCH_UNROLL
    for (int c = 0; c < kOwn; ++c) {
      Staged& column = local.staged[c];
      const int k = s + own + c;
      const bool inside = k < count;
      same[c] = c > 0 && group[c] == group[c > 0 ? c - 1 : 0];
      column.scale = same[c] ? 0.0f : scales[group[c]];
      column.zero = same[c] ? 0.0f : zeros[group[c]];
      column.original = inside ? delta.at(layer)[at + c * rows] : 0.0f;
      update[c] = first > 0 && inside ? updates.at(layer)[update_at + c * rows] : 0.0f;
    }
    PTQWATCH_UNROLL
    for (int c = 0; c < kOwn; ++c) {
      Staged& column = local.staged[c];
      if (same[c]) {
        column.scale = local.staged[c > 0 ? c - 1 : 0].scale;
        column.zero = local.staged[c > 0 ? c - 1 : 0].zero;
      }
      column.current = first > 0 ? column.original + update[c] : column.original;
    }
  }

  // Adds the products of columns `j` and following, which are rounded, to the thread's from `k` on.
  PTQWATCH_HOST_DEVICE void Add(int j, int k, int lane, const Shared& shared, Local& local) const {
    PTQWATCH_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      const float d = shared.delta[j + i][lane];
      const Four ratio = *reinterpret_cast<const Four*>(&shared.ratios[j + i][k]);
      PTQWATCH_UNROLL
      for (int c = 0; c < kOwn; ++c) {
        local.staged[c].current = fmaf(d, ratio.value[c], local.staged[c].current);
      }
    }
  }

  PTQWATCH_HOST_DEVICE void Publish(int s, int own, int lane, Shared& shared, Local& local) const {
    if (s > 0) Add(s - kTogether, s + own, lane, shared, local);
    PTQWATCH_UNROLL
    for (int c = 0; c < kOwn; ++c) shared.staged[own + c][lane] = local.staged[c];
  }

  template <class Points>
  PTQWATCH_HOST_DEVICE void Round(const Points& points, int s, int lane, Shared& shared) const {
    const int turn = s / kTogether % 2;
    Staged column[kTogether];
    PTQWATCH_UNROLL
    for (int c = 0; c < kTogether; ++c) column[c] = shared.staged[c][lane];
    // Columns beyond the last are zeros: they round to zero, and nothing is read of them.
    PTQWATCH_UNROLL
    for (int c = 0; c < kTogether; ++c) {
      // Reads the ratios before the division, so that they are there when it is done.
      float ratio[kTogether];
      PTQWATCH_UNROLL
      for (int later = c / 4 * 4; later < kTogether; later += 4) {
        const Four four = *reinterpret_cast<const Four*>(&shared.ratios[s + c][s + later]);
        PTQWATCH_UNROLL
        for (int i = 0; i < 4; ++i) ratio[later + i] = four.value[i];
      }
      const float w = column[c].current;
      uint8_t code;
      const float q = points.Round(w, column[c].scale, column[c].zero, &code);
      const float d = column[c].original - q;
      PTQWATCH_UNROLL
      for (int later = c + 1; later < kTogether; ++later) {
        column[later].current = fmaf(d, ratio[later], column[later].current);
      }
      shared.delta[s + c][lane] = d;
      shared.miss[turn][c][lane] = w - q;
      shared.codes[turn][c][lane] = code;
    }
  }

  // Writes the columns from `s` on. The first two threads of a row also add up its loss and norm.
  PTQWATCH_HOST_DEVICE void Finish(int s, int helper, int lane, int count, const Shared& shared,
                                   Local& local) const {
    const int turn = s / kTogether % 2;
    const int own = helper * kOwn;
    const int64_t at = local.row + (first + s + own) * rows;
    PTQWATCH_UNROLL
    for (int c = 0; c < kOwn; ++c) {
      if (s + own + c >= count) continue;
      delta.at(local.layer)[at + c * rows] = shared.delta[s + own + c][lane];
      codes.at(local.layer)[at + c * rows] = shared.codes[turn][own + c][lane];
    }
    if (helper == 0) {
      PTQWATCH_UNROLL
      for (int c = 0; c < kTogether; ++c) {
        const float miss = s + c < count ? shared.miss[turn][c][lane] : 0.0f;
        const double wide = static_cast<double>(miss);
        local.sum += wide * wide * shared.weight[s + c];
      }
    } else if (helper == 1) {
      PTQWATCH_UNROLL
      for (int c = 0; c < kTogether; ++c) {
        const float d = s + c < count ? shared.delta[s + c][lane] : 0.0f;
        const double wide = static_cast<double>(d);
        local.sum += wide * wide;
      }
    }
  }

  PTQWATCH_HOST_DEVICE void Total(int helper, const Local& local) const {
    if (helper > 1) return;
    const Strided<double>& sums = helper == 0 ? row_loss : row_norm;
    double* const sum = sums.at(local.layer) + local.row;
    *sum = (first > 0 ? *sum : 0) + local.sum;
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
