#ifndef PTQWATCH_CUDA_KERNELS_CHOLESKY_KERNEL_H_
#define PTQWATCH_CUDA_KERNELS_CHOLESKY_KERNEL_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Factorises a diagonal block A of a symmetric matrix into U^T U in place and computes U^-T. One
/// block of threads does that, eight rows in three phases. The others copy the block's rows of all
/// later columns to `panel`, from which a product writes U^-T times them back.
///
/// Each of 256 threads owns a column of [A, I], which becomes a column of [U, U^-T]. While the
/// first warp factorises the eight rows' diagonal square, the others subtract from the next eight
/// rows the products with all rows that are known. Then all solve their own eight rows, and
/// subtract the products with these. Latency bounds the cost: 128 divisions in a chain.
struct FactorBlock {
  static constexpr int kSize = 128;
  static constexpr int kThreads = 2 * kSize;
  static constexpr int kLanes = 32;  ///< threads that factorise a square
  static constexpr int kRows = 8;
  static constexpr int kBands = kSize / kRows;
  static constexpr int kSteps = 3;
  static constexpr int kTurns = kBands + 2;
  static constexpr int kPhases = kSteps * (kTurns - 1) + 1;  // the last turn has one step
  static constexpr int kPanelColumns = 64;                   ///< copied by a block of threads
  struct Shared {
    /// U in bands of eight rows. A band begins with its diagonal square, which is left out.
    alignas(16) double factor[kRows * kRows * kBands * (kBands + 1) / 2];
    double rows[kRows][kThreads];  // eight rows of [A, I], to be solved
    /// The square is L D L^T with a diagonal D: L^T, and D^-1/2.
    alignas(16) double unit[kRows][kRows];
    alignas(16) double reciprocal[kRows];
  };
  struct Local {
    double solved[kRows];
    double next[kRows];  // the eight rows after these, less some products
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
    RunTurn<kPhase % kSteps>(kPhase / kSteps, at, shared, local);
  }
  // Turn 0 begins, turn b + 1 is for band b, and the last turn stores the last band.
  template <int kStep>
  PTQWATCH_HOST_DEVICE void RunTurn(int turn, Place at, Shared& shared, Local& local) const {
    if (at.block > 0) {
      if (turn == 0 && kStep == 0) CopyPanel(at);
      return;
    }
    const int first_row = (turn - 1) * kRows;  // -8 in turn 0
    if (first_row >= Count() + kRows) return;
    const bool ends = first_row >= Count();
    const int column = at.thread % kSize;
    const bool inverts = at.thread >= kSize;
    if (inverts && first + kSize >= size) return;
    if constexpr (kStep == 0) {
      if (turn > 1) Store(first_row - kRows, column, inverts, local.solved);
      // From here to the end of FactorSquare, which needs most registers, Local has no values.
      PTQWATCH_UNROLL
      for (int r = 0; r < kRows; ++r) local.solved[r] = local.next[r] = 0;
      if (at.thread < kLanes && turn > 0 && !ends) FactorSquare(first_row, at.thread, shared);
      if (first_row + kRows < Count()) {
        SubtractEarlier(first_row, column, inverts, shared, local);
      }
    } else if (ends) {
      return;
    } else if constexpr (kStep == 1) {
      if (turn > 0) Solve(first_row, at.thread, shared, local);
    } else {
      SubtractLast(first_row, at.thread, shared, local);
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

  // Eight rows of a column of [A, I]. A block with less than 128 columns is extended by ones on the
  // diagonal.
  PTQWATCH_HOST_DEVICE void Read(int row, int column, bool inverts, double* rows) const {
    if (inverts || column >= Count()) {
      PTQWATCH_UNROLL
      for (int r = 0; r < kRows; ++r) rows[r] = row + r == column ? 1 : 0;
      return;
    }
    const double* from = matrix + (first + column) * size + first;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const double value = from[row + r < column ? row + r : column];
      rows[r] = row + r > column ? 0 : value;
    }
  }

  // Subtracts from `rows` a row's products: `mine` times its numbers in eight columns.
  PTQWATCH_HOST_DEVICE static void Subtract(const double* numbers, double mine, double* rows) {
    const Two* from = reinterpret_cast<const Two*>(numbers);
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; r += 2) {
      const Two factors = from[r / 2];
      rows[r] = fma(-factors.value[0], mine, rows[r]);
      rows[r + 1] = fma(-factors.value[1], mine, rows[r + 1]);
    }
  }

  // Begins the eight rows after the band at `first_row`: less the products with all rows above it.
  PTQWATCH_HOST_DEVICE void SubtractEarlier(int first_row, int column, bool inverts,
                                            const Shared& shared, Local& local) const {
    const int next = first_row + kRows;
    if (!inverts && column < next) return;
    // Added at the end, so that the products do not wait for it.
    double element[kRows];
    Read(next, column, inverts, element);
    if (inverts) {
      // U^-T is zero above its diagonal.
      int band = column / kRows * kRows;
      const double* from = inverse + band * kSize + column;
      double mine[kRows];
      if (band < first_row) ReadInverse(from, mine);
      for (; band < first_row; band += kRows) {
        // The last time it reads the same again.
        double ahead[kRows];
        if (band + kRows < first_row) from += kRows * kSize;
        ReadInverse(from, ahead);
        const double* numbers = &shared.factor[BandAt(band, next)];
        PTQWATCH_UNROLL
        for (int k = 0; k < kRows; ++k) {
          Subtract(numbers + k * (kSize - band), mine[k], local.next);
          mine[k] = ahead[k];
        }
      }
    } else {
      for (int band = 0; band < first_row; band += kRows) {
        const double* numbers = &shared.factor[BandAt(band, next)];
        const double* own = &shared.factor[BandAt(band, column)];
        PTQWATCH_UNROLL
        for (int k = 0; k < kRows; ++k) {
          Subtract(numbers + k * (kSize - band), own[k * (kSize - band)], local.next);
        }
      }
    }
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) local.next[r] += element[r];
  }
  PTQWATCH_HOST_DEVICE static void ReadInverse(const double* from, double* rows) {
    PTQWATCH_UNROLL
    for (int k = 0; k < kRows; ++k) rows[k] = from[k * kSize];
  }

  // The square becomes L D L^T. All threads of a warp compute the same, then each a square root.
  PTQWATCH_HOST_DEVICE void FactorSquare(int first_row, int lane, Shared& shared) const {
    double a[kRows][kRows];
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      PTQWATCH_UNROLL
      for (int c = r; c < kRows; ++c) a[r][c] = shared.rows[r][first_row + c];
    }
    int bad = 0;
    double pivot = 1;
    double reciprocal = 1;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const double over = 1 / a[r][r];
      // False for NaN, too.
      if (bad == 0 && !(a[r][r] > 0 && a[r][r] < HUGE_VAL && over < HUGE_VAL)) bad = r + 1;
      pivot = lane == r ? a[r][r] : pivot;
      reciprocal = lane == r ? over : reciprocal;
      PTQWATCH_UNROLL
      for (int c = r + 1; c < kRows; ++c) {
        const double unit = a[r][c] * over;
        if (lane == 0) shared.unit[r][c] = unit;
        PTQWATCH_UNROLL
        for (int k = c; k < kRows; ++k) a[c][k] = fma(-unit, a[r][k], a[c][k]);
      }
    }
    if (lane < kRows) shared.reciprocal[lane] = sqrt(pivot) * reciprocal;
    if (lane == 0) Report(first_row, bad);
  }

  PTQWATCH_HOST_DEVICE void Solve(int first_row, int thread, Shared& shared, Local& local) const {
    const bool inverts = thread >= kSize;
    const int column = thread % kSize;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) local.solved[r] = shared.rows[r][thread];
    if (inverts ? column >= first_row + kRows : column < first_row) return;
    PTQWATCH_UNROLL
    for (int k = 0; k < kRows; ++k) {
      PTQWATCH_UNROLL
      for (int r = k + 1; r < kRows; ++r) {
        local.solved[r] = fma(-shared.unit[k][r], local.solved[k], local.solved[r]);
      }
    }
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) local.solved[r] *= shared.reciprocal[r];
    if (inverts || column < first_row + kRows) return;
    double* const to = &shared.factor[BandAt(first_row, column)];
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) to[r * (kSize - first_row)] = local.solved[r];
  }

  // Subtracts the products with the rows just solved, and hands on the next ones.
  PTQWATCH_HOST_DEVICE void SubtractLast(int first_row, int thread, Shared& shared,
                                         Local& local) const {
    const bool inverts = thread >= kSize;
    const int column = thread % kSize;
    const int next = first_row + kRows;
    if (next >= Count()) return;
    if (first_row >= 0 && (inverts ? column < next : column >= next)) {
      const double* numbers = &shared.factor[BandAt(first_row, next)];
      PTQWATCH_UNROLL
      for (int k = 0; k < kRows; ++k) {
        Subtract(numbers + k * (kSize - first_row), local.solved[k], local.next);
      }
    }
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) shared.rows[r][thread] = local.next[r];
  }

  PTQWATCH_HOST_DEVICE void Store(int first_row, int column, bool inverts,
                                  const double* rows) const {
    double* const to = inverts ? inverse + first_row * kSize + column
                               : matrix + (first + column) * size + first + first_row;
    const int stride = inverts ? kSize : 1;
    const int count = inverts ? kRows : column < Count() ? column - first_row + 1 : 0;
    PTQWATCH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r < count) to[r * stride] = rows[r];
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
