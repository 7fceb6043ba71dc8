#ifndef PTQWATCH_CUDA_KERNELS_CHOLESKY_KERNEL_H_
#define PTQWATCH_CUDA_KERNELS_CHOLESKY_KERNEL_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Factorises a diagonal block A of a symmetric matrix into U^T U in place and computes U^-T. One
/// block of threads does that, eight rows in two phases. The others copy the block's rows of all
/// later columns to `panel`, from which a product writes U^-T times them back.
///
/// Each thread owns a column of [A, I], which becomes a column of [U, U^-T]. First it subtracts the
/// products with all earlier rows. Then it factorises the eight rows' diagonal square in registers,
/// as every other thread does, and solves its own eight rows. Latency bounds the cost: 128 square
/// roots and divisions in a chain, and 120 rounds of the inner loop.
struct FactorBlock {
  static constexpr int kSize = 128;
  static constexpr int kThreads = 2 * kSize;
  static constexpr int kRows = 8;
  static constexpr int kBands = kSize / kRows;
  static constexpr int kPhases = 2 * kBands;
  static constexpr int kPanelColumns = 64;  ///< copied by a block of threads
  struct Shared {
    /// U in bands of eight rows. A band begins with its diagonal square.
    alignas(16) double factor[kRows * kRows * kBands * (kBands + 1) / 2];
    double square[kRows][kRows];
  };
  struct Local {
    double rows[kRows];
  };

  double* matrix = nullptr;  ///< [size, size], column-major; only the upper triangle is used
  int64_t size = 0;
  int64_t first = 0;          ///< first column of the block, a multiple of 128
  double* inverse = nullptr;  ///< [128, 128], row-major: U^-T; unused if no columns follow
  double* panel = nullptr;    ///< [later columns, 128]
  int32_t* info = nullptr;  ///< 1 + the first column whose pivot is not positive, or 0; written if
                            ///< `first` is 0, otherwise only if it is 0

  PTQWATCH_HOST_DEVICE int Count() const { return static_cast<int>(AtMost(kSize, size - first)); }
  int64_t Blocks() const { return 1 + CeilDiv(size - first - Count(), kPanelColumns); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local& local) const {
    RunPhase(kPhase, at, shared, local);
  }
  PTQWATCH_HOST_DEVICE void RunPhase(int phase, Place at, Shared& shared, Local& local) const {
    if (at.block > 0) {
      if (phase == 0) CopyPanel(at);
      return;
    }
    const int first_row = phase / 2 * kRows;
    if (first_row >= Count()) return;
    const int column = at.thread % kSize;
    const bool inverts = at.thread >= kSize;
    if (phase % 2 == 0) {
      Subtract(first_row, column, inverts, shared, local);
    } else {
      Solve(first_row, column, inverts, shared, local);
    }
  }

 private:
  struct alignas(16) Two {
    double value[2];
  };

  // The position of U[row, column] in Shared::factor; `row` is the first of a band.
  PTQWATCH_HOST_DEVICE static int BandAt(int row, int column) {
    return row * kSize - row * (row - kRows) / 2 + column - row;
  }

  PTQWATCH_HOST_DEVICE void CopyPanel(Place at) const {
    const int64_t row = at.thread % kSize;
    const int64_t begin = (at.block - 1) * kPanelColumns;
    const int64_t end = AtMost(begin + kPanelColumns, size - first - kSize);
    for (int64_t c = begin + at.thread / kSize; c < end; c += kThreads / kSize) {
      panel[c * kSize + row] = matrix[(first + kSize + c) * size + first + row];
    }
  }

  // An element of [A, I]. A block with less than 128 columns is extended by ones on the diagonal.
  PTQWATCH_HOST_DEVICE double Element(int row, int column, bool inverts) const {
    if (inverts || column >= Count()) return row == column ? 1 : 0;
    return row > column ? 0 : matrix[(first + column) * size + first + row];
  }

  // Eight rows of a column, less the products with all rows above. Shares their diagonal square.
  PTQWATCH_HOST_DEVICE void Subtract(int first_row, int column, bool inverts, Shared& shared,
                                     Local& local) const {
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) local.rows[r] = Element(first_row + r, column, inverts);
    if (!inverts && column < first_row) return;
    // U^-T is zero above its diagonal.
    for (int band = inverts ? column / kRows * kRows : 0; band < first_row; band += kRows) {
      const int width = kSize - band;
      const int own = BandAt(band, column);
      const int others = BandAt(band, first_row);
      PTQWATCH_UNROLL
      for (int k = 0; k < kRows; ++k) {
        const double mine =
            inverts ? inverse[(band + k) * kSize + column] : shared.factor[own + k * width];
        const Two* from = reinterpret_cast<const Two*>(&shared.factor[others + k * width]);
        PTQWATCH_UNROLL
        for (int r = 0; r < kRows; r += 2) {
          const Two factors = from[r / 2];
          local.rows[r] = fma(-factors.value[0], mine, local.rows[r]);
          local.rows[r + 1] = fma(-factors.value[1], mine, local.rows[r + 1]);
        }
      }
    }
    if (inverts || column >= first_row + kRows) return;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) shared.square[r][column - first_row] = local.rows[r];
  }

  PTQWATCH_HOST_DEVICE void Solve(int first_row, int column, bool inverts, Shared& shared,
                                  Local& local) const {
    double u[kRows][kRows];
    double reciprocal[kRows];
    int bad = 0;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      double pivot = shared.square[r][r];
      PTQWATCH_UNROLL
      for (int k = 0; k < r; ++k) pivot = fma(-u[k][r], u[k][r], pivot);
      // False for NaN, too.
      if (bad == 0 && !(pivot > 0 && pivot < HUGE_VAL)) bad = r + 1;
      reciprocal[r] = 1 / sqrt(pivot);
      PTQWATCH_UNROLL
      for (int c = r + 1; c < kRows; ++c) {
        double value = shared.square[r][c];
        PTQWATCH_UNROLL
        for (int k = 0; k < r; ++k) value = fma(-u[k][r], u[k][c], value);
        u[r][c] = value * reciprocal[r];
      }
    }
    if (inverts && column == 0) Report(first_row, bad);
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      double value = local.rows[r];
      PTQWATCH_UNROLL
      for (int k = 0; k < r; ++k) value = fma(-u[k][r], local.rows[k], value);
      value *= reciprocal[r];
      local.rows[r] = value;
      if (inverts) {
        inverse[(first_row + r) * kSize + column] = value;
      } else if (column >= first_row + r) {
        shared.factor[BandAt(first_row, column) + r * (kSize - first_row)] = value;
        if (column < Count()) matrix[(first + column) * size + first + first_row + r] = value;
      }
    }
  }

  PTQWATCH_HOST_DEVICE void Report(int first_row, int bad) const {
    const bool begins = first == 0 && first_row == 0;
    if (!begins && (bad == 0 || *info != 0)) return;
    *info = bad == 0 ? 0 : static_cast<int32_t>(first + first_row + bad);
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_CHOLESKY_KERNEL_H_
