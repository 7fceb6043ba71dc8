#ifndef PTQWATCH_CUDA_KERNELS_ROTATE_KERNEL_H_
#define PTQWATCH_CUDA_KERNELS_ROTATE_KERNEL_H_

#include <cstdint>

#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Multiplies lines of matrices by the matrix B of quantize/rotation.h, with its bits. A line is a
/// row or a column. Computes in float64 and rounds once. One thread per butterfly, 256 numbers per
/// block of threads. `to` may be `from`.
/// Cost: one pass over the matrix.
template <typename T>
struct RotateLines {
  static constexpr int kThreads = 128;
  static constexpr int kNumbers = 2 * kThreads;
  static constexpr int kSteps = 7;  // of butterflies, for blocks of up to 128 numbers
  static constexpr int kPhases = kSteps + 2;
  struct Shared {
    double number[kNumbers];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t lines = 0;
  int64_t length = 0;       ///< of a line
  int64_t line_stride = 0;  ///< from one line to the next
  int64_t stride = 1;       ///< from one number of a line to the next
  int block = 0;            ///< a power of two from 2 to 128; a shorter rest stays as it is
  double scale = 0;         ///< 1 / sqrt(block)
  PerLayer<const T> from = {};
  PerLayer<T> to = {};

  PTQWATCH_HOST_DEVICE int64_t Pieces() const { return CeilDiv(length, block); }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const {
    return CeilDiv(lines * Pieces(), kNumbers / block);
  }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t first = at.block % BlocksPerLayer() * (kNumbers / block);
    if constexpr (kPhase == 0 || kPhase == kPhases - 1) {
      for (int i = at.thread; i < kNumbers; i += kThreads) {
        const int64_t piece = first + i / block;
        const int64_t line = piece / Pieces();
        const int64_t begin = piece % Pieces() * block;
        const int64_t k = begin + i % block;
        const bool exists = line < lines && k < length;
        const int64_t where = line * line_stride + k * stride;
        if constexpr (kPhase == 0) {
          shared.number[i] = exists ? static_cast<double>(from.at[layer][where]) : 0;
        } else if (exists) {
          to.at[layer][where] = begin + block <= length ? static_cast<T>(shared.number[i] * scale)
                                                        : from.at[layer][where];
        }
      }
    } else {
      const int half = 1 << (kPhase - 1);
      if (half >= block) return;
      const int low = at.thread / half * 2 * half + at.thread % half;
      const double a = shared.number[low];
      const double b = shared.number[low + half];
      shared.number[low] = a + b;
      shared.number[low + half] = a - b;
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_ROTATE_KERNEL_H_
