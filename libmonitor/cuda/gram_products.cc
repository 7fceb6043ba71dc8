#include "cuda/gram_products.h"

#include <algorithm>

#include "base/status_macros.h"
#include "cuda/kernels/panel_kernels.h"

namespace ptqwatch::internal {
namespace {

// Rows of the result computed at a time. Half of a panel's diagonal square is below the diagonal
// and wasted. At 8192 inputs a product takes about 0.1 ms on an H100.
constexpr int64_t kPanel = 512;

// The number of slices of a chunk's rows whose products [width, count] are computed side by side.
// Chosen to give each of the 132 multiprocessors of an H100, most of which would otherwise be idle,
// two tiles of 128 x 256. More than eight slices would cost more in AddPanel.
//
// Limits for a chunk of 32768 rows in place and 4096 inputs in bfloat16 on an H100, by arithmetic:
// 0.55 ms for products at peak, 0.17 ms for results below the diagonal and for partly filled waves
// of tiles, 0.09 ms for adding to the float64 sums, 0.16 ms for two passes over the rows.
int64_t SlicesOf(int64_t width, int64_t count, int64_t rows) {
  constexpr int64_t kTiles = 2 * 132;
  constexpr int64_t kMostSlices = 8;
  constexpr int64_t kLeastRows = 512;
  const int64_t least = CeilDiv(rows, kRowsInFloat32);
  const int64_t fit = kTiles / (CeilDiv(width, 128) * CeilDiv(count, 256));
  return std::clamp<int64_t>(std::min(fit, rows / kLeastRows), least, kMostSlices);
}

// Computes the products of every slice. The first slice also gets the remaining rows.
absl::Status MultiplySlices(MatrixProduct product, const uint16_t* a, const uint16_t* b,
                            int64_t rows, double beta, Queue& queue) {
  product.k = rows / product.batch;
  product.a = a;
  product.b = b;
  product.stride_a = product.stride_b = product.k * product.lda;
  product.beta = beta;
  PTQWATCH_RETURN_IF_ERROR(queue.Multiply(product));
  const int64_t done = product.k * product.batch;
  if (done == rows) return absl::OkStatus();
  product.k = rows - done;
  product.a = a + done * product.lda;
  product.b = b + done * product.ldb;
  product.batch = 1;
  product.beta = 1;
  return queue.Multiply(product);
}

}  // namespace

int64_t PanelNumbers(int64_t width, int64_t rows) {
  int64_t most = 0;
  for (int64_t first = 0; first < width; first += kPanel) {
    const int64_t right = width - first;
    const int64_t count = std::min(kPanel, right);
    most = std::max(most, SlicesOf(right, count, rows) * right * count);
  }
  return most;
}

absl::Status AddProducts(const ProductRows& rows, int64_t inputs, float* panel, double* sum,
                         Queue& queue) {
  // In column-major terms, X^T is [inputs, rows]. The result is symmetric.
  MatrixProduct product{
      .arithmetic = rows.type == RowType::kFloat16 ? Arithmetic::kFloat16 : Arithmetic::kBFloat16,
      .transpose_b = true,
      .lda = rows.stride,
      .ldb = rows.stride,
      .c = panel};
  for (int64_t first = 0; first < inputs; first += kPanel) {
    product.m = product.ldc = rows.width - first;
    product.n = std::min(kPanel, rows.width - first);
    product.batch = SlicesOf(product.m, product.n, rows.rows);
    product.stride_c = product.m * product.n;
    const auto multiply = [&](const uint16_t* a, const uint16_t* b, double beta) {
      return MultiplySlices(product, a + first, b + first, rows.rows, beta, queue);
    };
    if (rows.type == RowType::kFloat32) {
      // Adds the smallest products first.
      PTQWATCH_RETURN_IF_ERROR(multiply(rows.rest16, rows.rest16, 0));
      PTQWATCH_RETURN_IF_ERROR(multiply(rows.rest16, rows.bits16, 1));
      PTQWATCH_RETURN_IF_ERROR(multiply(rows.bits16, rows.rest16, 1));
    }
    PTQWATCH_RETURN_IF_ERROR(
        multiply(rows.bits16, rows.bits16, rows.type == RowType::kFloat32 ? 1 : 0));
    const AddPanel add{.panel = panel,
                       .slices = product.batch,
                       .width = product.ldc,
                       .first = first,
                       .count = std::min(kPanel, inputs - first),
                       .stride = product.stride_c,
                       .cols = inputs,
                       .sum = sum};
    if (rows.finite != nullptr) {
      PTQWATCH_RETURN_IF_ERROR(queue.Run(MendSlices{.rows = {.data = rows.bits16,
                                                             .type = rows.type,
                                                             .rows = rows.rows,
                                                             .cols = inputs,
                                                             .stride = rows.stride},
                                                    .finite = rows.finite,
                                                    .skipped = rows.skipped,
                                                    .slices = add.slices,
                                                    .width = add.width,
                                                    .first = add.first,
                                                    .count = add.count,
                                                    .stride = add.stride,
                                                    .panel = panel}));
    }
    PTQWATCH_RETURN_IF_ERROR(queue.Run(add));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
