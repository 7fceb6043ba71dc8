#include "quantize/rotation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status_macros.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {
namespace {

// Transforms `block` vectors of `width` numbers, each `width` after the one before.
void Transform(int64_t block, int64_t width, double* values) {
  for (int64_t half = 1; half < block; half *= 2) {
    for (int64_t begin = 0; begin < block; begin += 2 * half) {
      double* low = values + begin * width;
      double* high = low + half * width;
      for (int64_t i = 0; i < half * width; ++i) {
        const double a = low[i];
        const double b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
  const double scale = 1 / std::sqrt(static_cast<double>(block));
  for (int64_t i = 0; i < block * width; ++i) values[i] *= scale;
}

// In float64, and then rounded once.
template <typename T>
absl::Status RotateRows(int64_t rows, int64_t cols, int64_t block, T* matrix,
                        const ExecutionContext& context) {
  std::vector<double> exact(static_cast<size_t>(block));
  return ForEachRow(
      rows, cols,
      [&](int64_t r) {
        T* row = matrix + r * cols;
        for (int64_t c = 0; c + block <= cols; c += block) {
          std::copy_n(row + c, block, exact.begin());
          Transform(block, 1, exact.data());
          for (int64_t i = 0; i < block; ++i) {
            row[c + i] = static_cast<T>(exact[static_cast<size_t>(i)]);
          }
        }
      },
      context);
}

}  // namespace

absl::Status RotateColumns(int64_t rows, int64_t cols, int64_t block, float* matrix,
                           const ExecutionContext& context) {
  return RotateRows(rows, cols, block, matrix, context);
}

absl::Status RotateGram(int64_t size, int64_t block, double* gram,
                        const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(RotateRows(size, size, block, gram, context));
  for (int64_t r = 0; r + block <= size; r += block) {
    Transform(block, size, gram + r * size);
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
  // Removes rounding errors from the symmetry.
  return ForEachRow(
      size, size,
      [&](int64_t r) {
        for (int64_t c = 0; c < r; ++c) gram[r * size + c] = gram[c * size + r];
      },
      context);
}

}  // namespace ptqwatch::internal
