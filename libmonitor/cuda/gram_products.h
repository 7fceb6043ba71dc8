#ifndef PTQWATCH_CUDA_GRAM_PRODUCTS_H_
#define PTQWATCH_CUDA_GRAM_PRODUCTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda/compute_device.h"
#include "cuda/kernels/gram_kernels.h"

namespace ptqwatch::internal {

/// Rows whose products matrix units add up in float32.
struct ProductRows {
  RowType type = RowType::kFloat32;
  int64_t rows = 0;
  int64_t stride = 0;                ///< numbers from one row to the next, a multiple of 8
  const uint16_t* bits16 = nullptr;  ///< the numbers, or the nearest bfloat16 of float32 numbers
  const uint16_t* rest16 = nullptr;  ///< of float32 numbers: the remainders
  /// Columns in memory: the inputs, and numbers up to a multiple of 8 whose products are dropped.
  int64_t width = 0;
  /// If not null, the rows are in place, and rows whose flag is 0 do not count.
  const uint8_t* finite = nullptr;
  const int64_t* skipped = nullptr;  ///< the number of such rows
};

/// The most rows whose products are added up in float32, apart from a remainder of less than 8.
inline constexpr int64_t kRowsInFloat32 = 8192;

/// The size of AddProducts' panel.
int64_t PanelNumbers(int64_t width, int64_t rows);

/// Adds the products of the rows to the upper triangle of `sum`, [inputs, inputs]: panel by panel
/// of its columns, in slices of kRowsInFloat32 rows or fewer that are computed side by side.
absl::Status AddProducts(const ProductRows& rows, int64_t inputs, float* panel, double* sum,
                         Queue& queue);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_GRAM_PRODUCTS_H_
