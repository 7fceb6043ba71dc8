#ifndef PTQWATCH_CUDA_KERNELS_TRACE_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_TRACE_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/block_sum.h"
#include "cuda/kernels/kernel.h"
#include "cuda/kernels/scalars.h"

namespace ptqwatch::internal {

/// Matrices in two parts, each a batch of bfloat16 arrays.
struct TwoParts {
  Strided<uint16_t> high = {};
  Strided<uint16_t> rest = {};

  PTQWATCH_HOST_DEVICE void Write(int64_t layer, int64_t to, float number) const {
    const TwoBFloat16 parts = Split(number);
    high.at(layer)[to] = parts.high;
    rest.at(layer)[to] = parts.rest;
  }
};

/// The triangle T with x S x^T = x T x^T: S on the diagonal, 2 S above, 0 below.
struct FoldSum {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  int layers = 0;
  int64_t cols = 0;
  int64_t padded = 0;  ///< numbers from one row of `out` to the next
  PerLayer<const double> sum = {};
  TwoParts out = {};  ///< [cols, padded]

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(cols, kThreads); }
  int64_t Blocks() const { return layers * cols * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t layer = at.block / (cols * Strips());
    const int64_t i = at.block / Strips() % cols;
    const int64_t j = at.block % Strips() * kThreads + at.thread;
    if (j >= cols) return;
    const double s = sum.at[layer][i * cols + j];
    out.Write(layer, i * padded + j, j < i ? 0.0f : static_cast<float>(j == i ? s : 2 * s));
  }
};

/// Splits rows of X for a product.
struct SplitRows {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  static constexpr int64_t kPerThread = 4;
  using Shared = Nothing;
  using Local = Nothing;

  int layers = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t padded = 0;              ///< numbers from one row of `out` to the next
  Strided<const float> from = {};  ///< [rows, cols]
  TwoParts out = {};               ///< [rows, padded]

  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(cols, kThreads * kPerThread); }
  int64_t Blocks() const { return layers * rows * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t layer = at.block / (rows * Strips());
    const int64_t row = at.block / Strips() % rows;
    const int64_t begin = at.block % Strips() * kThreads * kPerThread + at.thread;
    for (int64_t i = 0; i < kPerThread; ++i) {
      const int64_t c = begin + i * kThreads;
      if (c >= cols) return;
      out.Write(layer, row * padded + c, from.at(layer)[row * cols + c]);
    }
  }
};

/// The matrix X of a trace: from - minus, or `from` if `minus` is null.
struct Subtract {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  static constexpr int64_t kPerThread = 4;
  using Shared = Nothing;
  using Local = Nothing;

  int layers = 0;
  int64_t size = 0;
  PerLayer<const float> from = {};
  PerLayer<const float> minus = {};
  Strided<float> out = {};

  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const {
    return CeilDiv(size, kThreads * kPerThread);
  }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t begin = at.block % BlocksPerLayer() * kThreads * kPerThread + at.thread;
    for (int64_t i = 0; i < kPerThread; ++i) {
      const int64_t to = begin + i * kThreads;
      if (to >= size) return;
      const float w = from.at[layer][to];
      out.at(layer)[to] = minus.at[layer] == nullptr ? w : w - minus.at[layer][to];
    }
  }
};

/// Converts float32 numbers to float64.
struct Widen {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  int64_t size = 0;
  const float* from = nullptr;
  double* out = nullptr;

  int64_t Blocks() const { return CeilDiv(size, kThreads); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t to = at.block * kThreads + at.thread;
    if (to < size) out[to] = static_cast<double>(from[to]);
  }
};

/// Partial sums of the elements of P * X (element-wise) and of their absolute values, in float64.
/// Each block of threads sums a range of rows.
template <typename T>
struct DotRows {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;
  struct Shared {
    BlockSum<kThreads> value;
    BlockSum<kThreads> magnitude;
  };
  using Local = Nothing;

  int layers = 0;
  int64_t rows = 0;
  int64_t width = 0;              ///< columns of the product
  int64_t parts = 0;              ///< blocks per layer
  Strided<const T> product = {};  ///< [rows, width]
  Strided<const T> x = {};        ///< begins at the product's first column
  int64_t x_cols = 0;             ///< elements from one row of x to the next
  Strided<double> partials = {};  ///< [parts, 2]

  int64_t Blocks() const { return layers * parts; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / parts;
    const int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      const int64_t each = CeilDiv(rows, parts);
      const int64_t end = AtMost(rows, (part + 1) * each);
      double value = 0;
      double magnitude = 0;
      for (int64_t row = part * each; row < end; ++row) {
        for (int64_t col = at.thread; col < width; col += kThreads) {
          const double term = static_cast<double>(product.at(layer)[row * width + col]) *
                              static_cast<double>(x.at(layer)[row * x_cols + col]);
          value += term;
          magnitude += fabs(term);
        }
      }
      shared.value.value[at.thread] = value;
      shared.magnitude.value[at.thread] = magnitude;
    } else if constexpr (kPhase == 1) {
      shared.value.AddParts(at.thread);
      shared.magnitude.AddParts(at.thread);
    } else if (at.thread == 0) {
      partials.at(layer)[2 * part] = shared.value.Total();
      partials.at(layer)[2 * part + 1] = shared.magnitude.Total();
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_TRACE_KERNELS_H_
