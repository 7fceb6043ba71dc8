#include "matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ptqwatch::examples {
namespace {

constexpr int64_t kTileRows = 4;
constexpr int64_t kTileColumns = 16;

using Vector [[gnu::vector_size(32)]] = float;  // eight floats
constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);
constexpr int64_t kVectors = kTileColumns / kLanes;

/// 16 columns of one row of b, aligned for the vectors of machines with AVX.
struct alignas(sizeof(Vector)) PackedRow {
  Vector part[kVectors];
};

/// Multiplies one tile: `Rows` rows of a and 16 packed columns of b.
template <int64_t Rows>
[[gnu::always_inline]] inline void MultiplyTile(const MatrixView& a, int64_t row,
                                                const PackedRow* packed, int64_t columns,
                                                float* product, int64_t stride) {
  Vector sum[Rows][kVectors] = {};
  const float* left = a.data + row * a.row_stride;
  for (int64_t k = 0; k < a.columns; ++k, left += a.column_stride, ++packed) {
    for (int64_t i = 0; i < Rows; ++i) {
      for (int64_t v = 0; v < kVectors; ++v) sum[i][v] += left[i * a.row_stride] * packed->part[v];
    }
  }
  for (int64_t i = 0; i < Rows; ++i) {
    // Copies first: taking the address of `sum` would keep it out of registers.
    Vector out[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) out[v] = sum[i][v];
    std::memcpy(product + i * stride, out, static_cast<size_t>(columns) * sizeof(float));
  }
}

[[gnu::always_inline]] inline void MultiplyPanel(const MatrixView& a, const PackedRow* packed,
                                                 int64_t columns, float* product, int64_t stride) {
  int64_t row = 0;
  for (; row + kTileRows <= a.rows; row += kTileRows) {
    MultiplyTile<kTileRows>(a, row, packed, columns, product + row * stride, stride);
  }
  for (; row < a.rows; ++row) {
    MultiplyTile<1>(a, row, packed, columns, product + row * stride, stride);
  }
}

using PanelFunction = void (*)(const MatrixView&, const PackedRow*, int64_t, float*, int64_t);

void PlainPanel(const MatrixView& a, const PackedRow* packed, int64_t columns, float* product,
                int64_t stride) {
  MultiplyPanel(a, packed, columns, product, stride);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void Avx2Panel(const MatrixView& a, const PackedRow* packed,
                                       int64_t columns, float* product, int64_t stride) {
  MultiplyPanel(a, packed, columns, product, stride);
}
#endif

PanelFunction ChoosePanelFunction() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return Avx2Panel;
#endif
  return PlainPanel;
}

}  // namespace

MatrixView RowMajor(std::span<const float> values, int64_t columns) {
  return {values.data(), static_cast<int64_t>(values.size()) / columns, columns, columns};
}

void Multiply(const MatrixView& a, const MatrixView& b, std::span<float> product) {
  static const PanelFunction multiply_panel = ChoosePanelFunction();
  thread_local std::vector<PackedRow> packed;
  packed.resize(static_cast<size_t>(b.rows));
  for (int64_t first = 0; first < b.columns; first += kTileColumns) {
    const int64_t columns = std::min(kTileColumns, b.columns - first);
    for (int64_t k = 0; k < b.rows; ++k) {
      const float* from = b.data + k * b.row_stride + first * b.column_stride;
      float to[kTileColumns] = {};
      for (int64_t j = 0; j < columns; ++j) to[j] = from[j * b.column_stride];
      std::memcpy(packed[static_cast<size_t>(k)].part, to, sizeof(to));
    }
    multiply_panel(a, packed.data(), columns, product.data() + first, b.columns);
  }
}

}  // namespace ptqwatch::examples
