#ifndef PTQWATCH_FUNCTIONAL_MATRIX_H_
#define PTQWATCH_FUNCTIONAL_MATRIX_H_

#include <cstdint>
#include <span>

namespace ptqwatch::examples {

/// A view of a matrix in memory owned elsewhere. Element (i, j) is data[i * row_stride + j *
/// column_stride].
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;

  MatrixView Transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// `values` as a row-major matrix with `columns` columns.
MatrixView RowMajor(std::span<const float> values, int64_t columns);

/// product = a * b, row-major. Sums have a fixed order, so the bits are the same on any machine.
/// REQUIRES: a.columns == b.rows, product.size() == a.rows * b.columns.
void Multiply(const MatrixView& a, const MatrixView& b, std::span<float> product);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_MATRIX_H_
