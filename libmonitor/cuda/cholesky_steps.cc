#include "cuda/cholesky_steps.h"

#include <algorithm>

#include "base/status_macros.h"
#include "cuda/layer_group.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kBlock = FactorBlock::kSize;
// Rows from which one product subtracts all earlier rows' contributions.
constexpr int64_t kOuterBlock = 4 * kBlock;

}  // namespace

absl::Status Cholesky::Take(Arena& arena, int64_t size) {
  constexpr char kWhat[] = "factorising H";
  size_ = size;
  PTQWATCH_ASSIGN_OR_RETURN(inverse_, arena.TakeArray<double>(kBlock * kBlock, kWhat));
  PTQWATCH_ASSIGN_OR_RETURN(
      panel_, arena.TakeArray<double>(std::max<int64_t>(size - kBlock, 0) * kBlock, kWhat));
  return absl::OkStatus();
}

// Subtracts from the rows that begin at `first` the products of earlier rows that have not been
// subtracted: of all rows at the begin of an outer block, otherwise of that block's.
absl::Status Cholesky::Subtract(double* matrix, int64_t first, Queue& queue) const {
  const int64_t outer = first / kOuterBlock * kOuterBlock;
  const bool begins = first == outer;
  const int64_t from = begins ? 0 : outer;
  MatrixProduct product{.arithmetic = Arithmetic::kFloat64,
                        .transpose_a = true,
                        .m = std::min(begins ? kOuterBlock : kBlock, size_ - first),
                        .k = first - from,
                        .alpha = -1,
                        .a = matrix + first * size_ + from,
                        .lda = size_,
                        .ldb = size_,
                        .beta = 1,
                        .ldc = size_};
  const int64_t together = RowsPerProduct(size_ - first, product.m, product.k);
  for (int64_t column = first; column < size_; column += together) {
    product.n = std::min(together, size_ - column);
    product.b = matrix + column * size_ + from;
    product.c = matrix + column * size_ + first;
    PTQWATCH_RETURN_IF_ERROR(queue.Multiply(product));
  }
  return absl::OkStatus();
}

absl::Status Cholesky::Factorize(double* matrix, int32_t* info, Queue& queue) const {
  for (int64_t first = 0; first < size_; first += kBlock) {
    if (first > 0) PTQWATCH_RETURN_IF_ERROR(Subtract(matrix, first, queue));
    PTQWATCH_RETURN_IF_ERROR(queue.Run(FactorBlock{.matrix = matrix,
                                                   .size = size_,
                                                   .first = first,
                                                   .inverse = inverse_,
                                                   .panel = panel_,
                                                   .info = info}));
    const int64_t later = first + kBlock;
    if (later >= size_) break;
    PTQWATCH_RETURN_IF_ERROR(queue.Multiply({.arithmetic = Arithmetic::kFloat64,
                                             .transpose_a = true,
                                             .m = kBlock,
                                             .n = size_ - later,
                                             .k = kBlock,
                                             .a = inverse_,
                                             .lda = kBlock,
                                             .b = panel_,
                                             .ldb = kBlock,
                                             .c = matrix + later * size_ + first,
                                             .ldc = size_}));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
