#ifndef PTQWATCH_CUDA_KERNELS_PANEL_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_PANEL_KERNELS_H_

#include <cstdint>

#include "cuda/kernels/gram_kernels.h"
#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Computes the products of the slices that hold a row which is not finite again, without such
/// rows. Ends at once if there is none. A thread computes 4 x 4 products: in float32 over 64 rows,
/// in float64 beyond.
struct MendSlices {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kSide = 16;  // threads
  static constexpr int kEach = 4;   // products
  static constexpr int kTile = kSide * kEach;
  static constexpr int kRowsInFloat = 64;
  static_assert(kSide * kSide == kThreads);
  struct Shared {
    int bad[kThreads];
  };
  using Local = Nothing;

  DeviceRows rows = {};
  const uint8_t* finite = nullptr;   ///< [rows]
  const int64_t* skipped = nullptr;  ///< the number of rows that are not finite
  /// As in AddPanel. A slice has rows / slices rows; the first one also has the remaining rows.
  int64_t slices = 0;
  int64_t width = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 0;
  float* panel = nullptr;

  PTQWATCH_HOST_DEVICE int64_t Across() const { return CeilDiv(width, kTile); }
  PTQWATCH_HOST_DEVICE int64_t Tiles() const { return Across() * CeilDiv(count, kTile); }
  int64_t Blocks() const { return slices * Tiles(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    if (*skipped == 0) return;
    const int64_t slice = at.block / Tiles();
    const int64_t i0 = at.block % Tiles() / Across() * kTile;
    const int64_t j0 = at.block % Tiles() % Across() * kTile;
    // Products below the diagonal are not used.
    if (j0 + kTile <= i0) return;
    if constexpr (kPhase == 0) {
      int bad = 0;
      for (int part = 0; part < 2; ++part) {
        for (int64_t r = Begin(slice, part) + at.thread; r < End(slice, part); r += kThreads) {
          bad |= finite[r] == 0 ? 1 : 0;
        }
      }
      shared.bad[at.thread] = bad;
    } else {
      int bad = 0;
      for (int i = 0; i < kThreads; ++i) bad |= shared.bad[i];
      if (bad != 0) Multiply(slice, i0 + at.thread / kSide, j0 + at.thread % kSide);
    }
  }

 private:
  // A slice's rows are two ranges.
  PTQWATCH_HOST_DEVICE int64_t Begin(int64_t slice, int part) const {
    return (part == 0 ? slice : slices) * (rows.rows / slices);
  }
  PTQWATCH_HOST_DEVICE int64_t End(int64_t slice, int part) const {
    if (part == 0) return (slice + 1) * (rows.rows / slices);
    return slice == 0 ? rows.rows : Begin(slice, part);
  }

  // Products i, i + kSide, ... by j, j + kSide, ... of the panel.
  PTQWATCH_HOST_DEVICE void Multiply(int64_t slice, int64_t i, int64_t j) const {
    double total[kEach][kEach] = {};
    float sum[kEach][kEach] = {};
    int pending = 0;
    for (int part = 0; part < 2; ++part) {
      for (int64_t r = Begin(slice, part); r < End(slice, part); ++r) {
        if (finite[r] == 0) continue;
        float left[kEach];
        float right[kEach];
        PTQWATCH_UNROLL
        for (int e = 0; e < kEach; ++e) {
          left[e] = Number(r, i + e * kSide, count);
          right[e] = Number(r, j + e * kSide, width);
        }
        PTQWATCH_UNROLL
        for (int a = 0; a < kEach; ++a) {
          PTQWATCH_UNROLL
          for (int b = 0; b < kEach; ++b) sum[a][b] += left[a] * right[b];
        }
        if (++pending < kRowsInFloat) continue;
        pending = 0;
        Flush(sum, total);
      }
    }
    Flush(sum, total);
    PTQWATCH_UNROLL
    for (int a = 0; a < kEach; ++a) {
      PTQWATCH_UNROLL
      for (int b = 0; b < kEach; ++b) {
        const int64_t row = i + a * kSide;
        const int64_t col = j + b * kSide;
        if (row < count && col < width) {
          panel[slice * stride + row * width + col] = static_cast<float>(total[a][b]);
        }
      }
    }
  }
  PTQWATCH_HOST_DEVICE float Number(int64_t row, int64_t col, int64_t end) const {
    return col < end ? rows.Number(row, first + col) : 0.0f;
  }
  PTQWATCH_HOST_DEVICE static void Flush(float (&sum)[kEach][kEach],
                                         double (&total)[kEach][kEach]) {
    PTQWATCH_UNROLL
    for (int a = 0; a < kEach; ++a) {
      PTQWATCH_UNROLL
      for (int b = 0; b < kEach; ++b) {
        total[a][b] += static_cast<double>(sum[a][b]);
        sum[a][b] = 0;
      }
    }
  }
};

/// Adds a panel of a chunk's products, summed over slices of rows, to the sum's upper triangle.
struct AddPanel {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  const float* panel =
      nullptr;  ///< [slices, count, width]: the products' rows and columns from `first` on
  int64_t slices = 0;
  int64_t width = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t stride = 0;  ///< from one slice to the next
  int64_t cols = 0;
  double* sum = nullptr;  ///< [cols, cols]

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(cols - first, kThreads); }
  int64_t Blocks() const { return count * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t i = at.block / Strips();
    const int64_t j = at.block % Strips() * kThreads + at.thread;
    if (j < i || first + j >= cols) return;
    double products = 0;
    for (int64_t s = 0; s < slices; ++s) {
      products += static_cast<double>(panel[s * stride + i * width + j]);
    }
    sum[(first + i) * cols + first + j] += products;
  }
};

/// Copies the upper triangle to the lower one, in square tiles.
struct MirrorSum {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kTile = 32;
  struct Shared {
    double tile[kTile][kTile + 1];
  };
  using Local = Nothing;

  double* sum = nullptr;
  int64_t cols = 0;

  PTQWATCH_HOST_DEVICE int64_t Tiles() const { return CeilDiv(cols, kTile); }
  int64_t Blocks() const { return Tiles() * Tiles(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t i0 = at.block / Tiles() * kTile;
    const int64_t j0 = at.block % Tiles() * kTile;
    if (j0 < i0) return;
    const int column = at.thread % kTile;
    for (int row = at.thread / kTile; row < kTile; row += kThreads / kTile) {
      if constexpr (kPhase == 0) {
        if (i0 + row < cols && j0 + column < cols) {
          shared.tile[row][column] = sum[(i0 + row) * cols + j0 + column];
        }
      } else {
        // Row and column in the lower triangle.
        const int64_t i = j0 + row;
        const int64_t j = i0 + column;
        if (i < cols && j < i) sum[i * cols + j] = shared.tile[column][row];
      }
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_PANEL_KERNELS_H_
