#include "cuda/gptq_steps.h"

#include <algorithm>

#include "base/status_macros.h"
#include "cuda/cholesky_steps.h"
#include "cuda/round_steps.h"

namespace ptqwatch::internal {
namespace {

// Columns whose products with all columns before them are computed together: 128 columns are too
// few to fill a device.
constexpr int64_t kOuterColumns = 4 * kGptqBlock;

struct Buffers {
  Cholesky cholesky;
  double* matrix = nullptr;  // [cols, cols]; shared, as factors are made in turn
  int32_t* info = nullptr;
  Strided<float> ratios;
  Strided<double> pivots;
  Strided<float> delta;
  Strided<uint8_t> codes;
  Strided<float> updates;  // [512, rows]: the products for the columns of an outer block
  Strided<double> row_loss;
  Strided<double> row_norm;

  absl::Status Take(const LayerGroup& group, Arena& arena);
};

int64_t PaddedToBlocks(int64_t cols) { return CeilDiv(cols, kGptqBlock) * kGptqBlock; }

absl::Status Buffers::Take(const LayerGroup& group, Arena& arena) {
  const int64_t cols = group.cols;
  const int64_t padded = PaddedToBlocks(cols);
  const int64_t layers = group.layers;
  PTQWATCH_ASSIGN_OR_RETURN(matrix, arena.TakeArray<double>(cols * cols, "factorising H"));
  PTQWATCH_RETURN_IF_ERROR(cholesky.Take(arena, cols));
  PTQWATCH_ASSIGN_OR_RETURN(info, arena.TakeArray<int32_t>(1, "factorising H"));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.inputs, padded * padded, &ratios));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.inputs, cols, &pivots));
  ratios.stride = group.InputStride(padded * padded);
  pivots.stride = group.InputStride(cols);
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, layers, group.size(), &delta));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, layers, group.size(), &codes));
  PTQWATCH_RETURN_IF_ERROR(
      TakeStrided(arena, layers, std::min(kOuterColumns, padded) * group.rows, &updates));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, layers, group.rows, &row_loss));
  return TakeStrided(arena, layers, group.rows, &row_norm);
}

absl::Status Factorize(const LayerGroup& group, const Buffers& buffers, Queue& queue) {
  const int64_t cols = group.cols;
  PTQWATCH_RETURN_IF_ERROR(
      queue.Run(RankColumns{.layers = group.inputs,
                            .cols = cols,
                            .by_diagonal = group.spec.order == QuantizationOrder::kStaticAct,
                            .diagonal = Const(group.diagonal),
                            .order = group.order,
                            .position = group.position}));
  for (int i = 0; i < group.inputs; ++i) {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(BuildDamped{.cols = cols,
                                                   .sum = group.sum.at[i],
                                                   .counts = group.counts.at[i],
                                                   .diagonal = group.diagonal.at(i),
                                                   .order = group.order.at[i],
                                                   .numbers = group.numbers.at[i],
                                                   .matrix = buffers.matrix}));
    PTQWATCH_RETURN_IF_ERROR(buffers.cholesky.Factorize(buffers.matrix, buffers.info, queue));
    PTQWATCH_RETURN_IF_ERROR(
        queue.Run(PackFeedback{.cols = cols,
                               .padded = PaddedToBlocks(cols),
                               .factor = buffers.matrix,
                               .info = buffers.info,
                               .ratios = buffers.ratios.at(i),
                               .diagonal = buffers.pivots.at(i),
                               .numbers = group.numbers,
                               .begin = group.inputs == 1 ? 0 : i,
                               .end = group.inputs == 1 ? group.layers : i + 1}));
  }
  return absl::OkStatus();
}

// Adds up the products of the columns from `first` on with earlier columns: column-major [rows, .].
// At the begin of an outer block for all of its columns, with all earlier columns; otherwise for
// one block, with the earlier columns of its outer block.
absl::Status Update(const LayerGroup& group, const Buffers& buffers, int64_t first, Queue& queue) {
  const int64_t rows = group.rows;
  const int64_t padded = PaddedToBlocks(group.cols);
  const int64_t outer = first / kOuterColumns * kOuterColumns;
  const bool begins = first == outer;
  const int64_t from = begins ? 0 : outer;
  MatrixProduct product{.transpose_b = true,
                        .n = begins ? std::min(kOuterColumns, padded - first) : kGptqBlock,
                        .k = first - from,
                        .lda = rows,
                        .stride_a = buffers.delta.stride,
                        .b = buffers.ratios.first + from * padded + first,
                        .ldb = padded,
                        .stride_b = buffers.ratios.stride,
                        .beta = from > 0 ? 1.0 : 0.0,
                        .ldc = rows,
                        .stride_c = buffers.updates.stride,
                        .batch = group.layers};
  const int64_t together = RowsPerProduct(rows, product.n, product.k);
  for (int64_t row = 0; row < rows; row += together) {
    product.m = std::min(together, rows - row);
    product.a = buffers.delta.first + from * rows + row;
    product.c = buffers.updates.first + (first - outer) * rows + row;
    PTQWATCH_RETURN_IF_ERROR(queue.Multiply(product));
  }
  return absl::OkStatus();
}

absl::Status Loop(const LayerGroup& group, const Buffers& buffers, Queue& queue) {
  QuantizeBlock block{.layers = group.layers,
                      .rows = group.rows,
                      .cols = group.cols,
                      .grids = group.grids,
                      .padded = PaddedToBlocks(group.cols),
                      .ratios = Const(buffers.ratios),
                      .diagonal = Const(buffers.pivots),
                      .order = Const(group.order),
                      .factor_of_layer = group.inputs == 1 ? 0 : 1,
                      .updates = Const(buffers.updates),
                      .scale = Const(group.scale),
                      .zero = Const(group.zero),
                      .delta = buffers.delta,
                      .codes = buffers.codes,
                      .row_loss = buffers.row_loss,
                      .row_norm = buffers.row_norm};
  for (; block.first < group.cols; block.first += kGptqBlock) {
    if (block.first > 0) {
      PTQWATCH_RETURN_IF_ERROR(Update(group, buffers, block.first, queue));
    }
    block.updates.first = buffers.updates.first + block.first % kOuterColumns * group.rows;
    PTQWATCH_RETURN_IF_ERROR(queue.Run(block));
  }
  return absl::OkStatus();
}

absl::Status AddUp(const LayerGroup& group, const Strided<double>& values, Number position,
                   Queue& queue) {
  return queue.Run(Collapse{.layers = group.layers,
                            .count = group.rows,
                            .values = Const(values),
                            .numbers = group.numbers,
                            .position = position});
}

}  // namespace

absl::Status TakeGptqBuffers(const LayerGroup& group, Arena& arena) {
  Buffers buffers;
  PTQWATCH_RETURN_IF_ERROR(buffers.Take(group, arena));
  Strided<double> clipped;
  return TakeFitBuffers(group, arena, &clipped);
}

absl::Status QuantizeByGptq(const LayerGroup& group, Queue& queue) {
  ArenaScope scope(queue.arena());
  Buffers buffers;
  PTQWATCH_RETURN_IF_ERROR(buffers.Take(group, queue.arena()));
  const GridSource live = group.LiveSource();
  PTQWATCH_RETURN_IF_ERROR(FitGrids(group, live, queue));
  PTQWATCH_RETURN_IF_ERROR(Factorize(group, buffers, queue));
  PTQWATCH_RETURN_IF_ERROR(queue.Run(PackWeight{.layers = group.layers,
                                                .source = live,
                                                .position = Const(group.position),
                                                .out = buffers.delta}));
  PTQWATCH_RETURN_IF_ERROR(Loop(group, buffers, queue));
  PTQWATCH_RETURN_IF_ERROR(queue.Run(UnpackCodes{.layers = group.layers,
                                                 .rows = group.rows,
                                                 .cols = group.cols,
                                                 .grids = group.grids,
                                                 .position = Const(group.position),
                                                 .packed = Const(buffers.codes),
                                                 .scale = Const(group.scale),
                                                 .zero = Const(group.zero),
                                                 .codes = group.codes,
                                                 .decoded = group.dequantized}));
  PTQWATCH_RETURN_IF_ERROR(AddUp(group, buffers.row_loss, kLoopLoss, queue));
  return AddUp(group, buffers.row_norm, kLoopSquaredNorm, queue);
}

}  // namespace ptqwatch::internal
