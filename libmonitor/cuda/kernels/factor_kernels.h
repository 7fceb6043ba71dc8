#ifndef PTQWATCH_CUDA_KERNELS_FACTOR_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_FACTOR_KERNELS_H_

#include <cstdint>

#include "cuda/kernels/block_sum.h"
#include "cuda/kernels/kernel.h"
#include "cuda/kernels/numbers.h"

namespace ptqwatch::internal {

/// Computes diag(H), H = 2 / tokens * sum, and the host's numbers about it. One block per layer.
struct DescribeInputs {
  static constexpr int kThreads = 512;
  static constexpr int kPhases = 3;
  struct Shared {
    BlockSum<kThreads> sum;
    BlockSum<kThreads> live;
  };
  using Local = Nothing;

  int layers = 0;
  int64_t cols = 0;
  double damp = 0;
  PerLayer<const double> sum = {};
  PerLayer<const int64_t> counts = {};
  bool count_dead = true;         ///< write kDeadColumns
  Strided<double> diagonal = {};  ///< [cols]
  PerLayer<double> numbers = {};

  int64_t Blocks() const { return layers; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block;
    if constexpr (kPhase == 0) {
      const double scale = 2.0 / static_cast<double>(counts.at[layer][0]);
      double total = 0;
      double live = 0;
      for (int64_t c = at.thread; c < cols; c += kThreads) {
        const double s = sum.at[layer][c * cols + c];
        const double value = scale * s;
        if (layer == 0 || diagonal.stride > 0) diagonal.at(layer)[c] = value;
        total += value;
        live += value != 0 ? 1 : 0;
      }
      shared.sum.value[at.thread] = total;
      shared.live.value[at.thread] = live;
    } else if constexpr (kPhase == 1) {
      shared.sum.AddParts(at.thread);
      shared.live.AddParts(at.thread);
    } else if (at.thread == 0) {
      const double live = shared.live.Total();
      const double mean = live > 0 ? shared.sum.Total() / live : 0;
      double* out = numbers.at[layer];
      out[kTokens] = static_cast<double>(counts.at[layer][0]);
      out[kSkippedRows] = static_cast<double>(counts.at[layer][1]);
      if (count_dead) out[kDeadColumns] = static_cast<double>(cols) - live;
      out[kMeanDiagonal] = mean;
      out[kDampValue] = damp * mean;
    }
  }
};

/// The order of the columns: by descending diag(H), then index, or unchanged. cols^2 comparisons,
/// shared by eight threads per column.
struct RankColumns {
  static constexpr int kColumns = 32;  ///< of a block of threads
  static constexpr int kParts = 8;
  static constexpr int kThreads = kColumns * kParts;
  static constexpr int kPhases = 2;
  struct Shared {
    int32_t before[kParts][kColumns];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t cols = 0;
  bool by_diagonal = false;
  Strided<const double> diagonal = {};
  PerLayer<int32_t> order = {};    ///< [cols]: the column handled at position k
  Strided<int32_t> position = {};  ///< [cols]: the inverse

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(cols, kColumns); }
  int64_t Blocks() const { return layers * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / Strips();
    const int lane = at.thread % kColumns;
    const int part = at.thread / kColumns;
    const int64_t c = at.block % Strips() * kColumns + lane;
    if (c >= cols) return;
    if constexpr (kPhase == 0) {
      if (by_diagonal) shared.before[part][lane] = CountBefore(diagonal.at(layer), c, part);
    } else if (part == 0) {
      int64_t rank = c;
      if (by_diagonal) {
        rank = 0;
        for (int i = 0; i < kParts; ++i) rank += shared.before[i][lane];
      }
      order.at[layer][rank] = static_cast<int32_t>(c);
      position.at(layer)[c] = static_cast<int32_t>(rank);
    }
  }

 private:
  // The columns of a part that come before column c.
  PTQWATCH_HOST_DEVICE int32_t CountBefore(const double* values, int64_t c, int part) const {
    constexpr int kTogether = 8;
    const double own = Key(values[c]);
    const int64_t size = CeilDiv(cols, kParts);
    const int64_t end = AtMost(cols, (part + 1) * size);
    int32_t count = 0;
    for (int64_t begin = part * size; begin < end; begin += kTogether) {
      // Reads all numbers first, so that the reads overlap.
      double other[kTogether];
      PTQWATCH_UNROLL
      for (int i = 0; i < kTogether; ++i) other[i] = Key(values[AtMost(begin + i, end - 1)]);
      PTQWATCH_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const bool before = other[i] > own || (other[i] == own && begin + i < c);
        count += before && begin + i < end ? 1 : 0;
      }
    }
    return count;
  }

  // Ranks must be a permutation for any input, so NaN gets a key too.
  PTQWATCH_HOST_DEVICE static double Key(double value) { return value == value ? value : -1; }
};

/// Finds inputs that equal an earlier one in every row: S_ii = S_jj = S_ij. One block per input.
struct FindDuplicates {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 2;
  struct Shared {
    int found[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t cols = 0;
  PerLayer<const double> sum = {};
  Strided<double> found = {};  ///< [cols]: 1 if the input is a duplicate, else 0

  int64_t Blocks() const { return layers * cols; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / cols;
    const int64_t j = at.block % cols;
    if constexpr (kPhase == 0) {
      const double* s = sum.at[layer];
      const double norm = s[j * cols + j];
      int any = 0;
      if (norm != 0) {
        for (int64_t i = at.thread; i < j; i += kThreads) {
          any |= s[j * cols + i] == norm && s[i * cols + i] == norm ? 1 : 0;
        }
      }
      shared.found[at.thread] = any;
    } else if (at.thread == 0) {
      int any = 0;
      for (int i = 0; i < kThreads; ++i) any |= shared.found[i];
      found.at(layer)[j] = any;
    }
  }
};

/// The matrix to factorise: H damped, permuted and in reverse order. Upper triangle of a
/// column-major matrix, with zeros below.
struct BuildDamped {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  int64_t cols = 0;
  const double* sum = nullptr;
  const int64_t* counts = nullptr;
  const double* diagonal = nullptr;
  const int32_t* order = nullptr;
  const double* numbers = nullptr;
  double* matrix = nullptr;  ///< [cols, cols]

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(cols, kThreads); }
  int64_t Blocks() const { return cols * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t b = at.block / Strips();
    const int64_t a = at.block % Strips() * kThreads + at.thread;
    if (a >= cols) return;
    if (a > b) {
      matrix[b * cols + a] = 0;
      return;
    }
    const int64_t row = order[cols - 1 - b];
    const int64_t column = order[cols - 1 - a];
    double value = 2.0 / static_cast<double>(counts[0]) * sum[row * cols + column];
    // A dead input gets 1, so that the matrix has a factor.
    if (a == b) value = (diagonal[row] == 0 ? 1 : diagonal[row]) + numbers[kDampValue];
    matrix[b * cols + a] = value;
  }
};

/// N[j, k] = R[j, k] / R[k, k] for j < k, zeros elsewhere, and diag(R). R = J L J, where J reverses
/// the order and L^T is the upper triangle from the factorisation.
struct PackFeedback {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  int64_t cols = 0;
  int64_t padded = 0;
  const double* factor = nullptr;
  const int32_t* info = nullptr;
  float* ratios = nullptr;        ///< [padded, padded]
  double* diagonal = nullptr;     ///< [cols]
  PerLayer<double> numbers = {};  ///< for layers begin .. end, which share the factor
  int begin = 0;
  int end = 0;

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(padded, kThreads); }
  int64_t Blocks() const { return padded * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t j = at.block / Strips();
    const int64_t k = at.block % Strips() * kThreads + at.thread;
    if (j == 0 && begin + k < end) numbers.at[begin + k][kFactorInfo] = *info;
    if (k >= padded) return;
    const double pivot = k < cols ? factor[(cols - 1 - k) * (cols + 1)] : 1;
    float ratio = 0;
    if (j < k && k < cols) {
      ratio = static_cast<float>(factor[(cols - 1 - j) * cols + cols - 1 - k] * (1 / pivot));
    }
    ratios[j * padded + k] = ratio;
    if (j == 0 && k < cols) diagonal[k] = pivot;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_FACTOR_KERNELS_H_
