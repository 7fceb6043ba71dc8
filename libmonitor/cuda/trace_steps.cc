#include "cuda/trace_steps.h"

#include <algorithm>

#include "base/status_macros.h"
#include "cuda/round_steps.h"

namespace ptqwatch::internal {
namespace {

// Columns of a product computed at a time. Half of a panel's diagonal square is zeros.
constexpr int64_t kTracePanel = 512;
// Matrix units read 16 bytes at a time.
constexpr int64_t kAlignment = 8;
// Rows of a float64 product at a time.
constexpr int64_t kMostRows64 = 256;
// Blocks of threads that add up one panel of a product.
constexpr int64_t kParts = 256;

}  // namespace

bool Tracer::Wants(Precision precision) const {
  const Attempt& attempt = group_.attempt;
  return attempt.loss == precision || attempt.rtn_loss == precision || attempt.energy == precision;
}

absl::Status Tracer::Take(Arena& arena) {
  const int64_t cols = group_.cols;
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group_.layers, group_.size(), &x_));
  int64_t pieces = 0;
  if (Wants(Precision::kFloat32)) {
    const int64_t width = std::min(kTracePanel, cols);
    rows32_ = RowsPerProduct(group_.rows, width, cols);
    padded_ = CeilDiv(cols, kAlignment) * kAlignment;
    for (Strided<uint16_t>* part : {&folded_.high, &folded_.rest}) {
      PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group_.inputs, cols * padded_, part));
      part->stride = group_.InputStride(cols * padded_);
    }
    for (Strided<uint16_t>* part : {&rows_.high, &rows_.rest}) {
      PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group_.layers, rows32_ * padded_, part));
    }
    PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group_.layers, rows32_ * width, &product_));
    pieces = CeilDiv(cols, kTracePanel) * CeilDiv(group_.rows, rows32_);
  }
  if (Wants(Precision::kFloat64)) {
    rows64_ = std::min(kMostRows64, RowsPerProduct(group_.rows, cols, cols));
    PTQWATCH_ASSIGN_OR_RETURN(wide_x_, arena.TakeArray<double>(rows64_ * cols, "a layer's loss"));
    PTQWATCH_ASSIGN_OR_RETURN(wide_product_,
                              arena.TakeArray<double>(rows64_ * cols, "a layer's loss"));
    pieces = std::max(pieces, CeilDiv(group_.rows, rows64_));
  }
  return TakeStrided(arena, group_.layers, 2 * kParts * pieces, &partials_);
}

absl::Status Tracer::Prepare(Queue& queue) {
  if (!Wants(Precision::kFloat32)) return absl::OkStatus();
  return queue.Run(FoldSum{.layers = group_.inputs,
                           .cols = group_.cols,
                           .padded = padded_,
                           .sum = group_.sum,
                           .out = folded_});
}

absl::Status Tracer::Run(Queue& queue, Precision precision, int position) {
  return precision == Precision::kFloat32 ? RunFloat32(queue, position)
                                          : RunFloat64(queue, position);
}

// Columns [first, first + width) of X T, for the rows of X in rows_. Row-major [rows, width] is
// column-major [width, rows].
absl::Status Tracer::Multiply(Queue& queue, int64_t rows, int64_t first, int64_t width) {
  MatrixProduct product{.arithmetic = Arithmetic::kBFloat16,
                        .m = width,
                        .n = rows,
                        .k = first + width,
                        .lda = padded_,
                        .stride_a = folded_.high.stride,
                        .ldb = padded_,
                        .stride_b = rows_.high.stride,
                        .c = product_.first,
                        .ldc = width,
                        .stride_c = product_.stride,
                        .batch = group_.layers};
  const auto add = [&](const Strided<uint16_t>& folded, const Strided<uint16_t>& x) {
    product.a = folded.first + first;
    product.b = x.first;
    const absl::Status status = queue.Multiply(product);
    product.beta = 1;
    return status;
  };
  // Adds the smallest products first.
  PTQWATCH_RETURN_IF_ERROR(add(folded_.rest, rows_.high));
  PTQWATCH_RETURN_IF_ERROR(add(folded_.high, rows_.rest));
  return add(folded_.high, rows_.high);
}

absl::Status Tracer::RunFloat32(Queue& queue, int position) {
  const int64_t cols = group_.cols;
  int64_t done = 0;
  for (int64_t row = 0; row < group_.rows; row += rows32_) {
    const int64_t rows = std::min(rows32_, group_.rows - row);
    PTQWATCH_RETURN_IF_ERROR(queue.Run(SplitRows{.layers = group_.layers,
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .padded = padded_,
                                                 .from = {x_.first + row * cols, x_.stride},
                                                 .out = rows_}));
    for (int64_t first = 0; first < cols; first += kTracePanel) {
      const int64_t width = std::min(kTracePanel, cols - first);
      PTQWATCH_RETURN_IF_ERROR(Multiply(queue, rows, first, width));
      PTQWATCH_RETURN_IF_ERROR(
          queue.Run(DotRows<float>{.layers = group_.layers,
                                   .rows = rows,
                                   .width = width,
                                   .parts = kParts,
                                   .product = Const(product_),
                                   .x = {x_.first + row * cols + first, x_.stride},
                                   .x_cols = cols,
                                   .partials = {partials_.first + 2 * done, partials_.stride}}));
      done += kParts;
    }
  }
  return Finish(queue, position, done);
}

absl::Status Tracer::RunFloat64(Queue& queue, int position) {
  const int64_t cols = group_.cols;
  int64_t done = 0;
  for (int64_t row = 0; row < group_.rows; row += rows64_, done += kParts) {
    const int64_t rows = std::min(rows64_, group_.rows - row);
    for (int layer = 0; layer < group_.layers; ++layer) {
      PTQWATCH_RETURN_IF_ERROR(
          queue.Run(Widen{.size = rows * cols, .from = x_.at(layer) + row * cols, .out = wide_x_}));
      PTQWATCH_RETURN_IF_ERROR(queue.Multiply({.arithmetic = Arithmetic::kFloat64,
                                               .m = cols,
                                               .n = rows,
                                               .k = cols,
                                               .a = group_.sum.at[layer],
                                               .lda = cols,
                                               .b = wide_x_,
                                               .ldb = cols,
                                               .c = wide_product_,
                                               .ldc = cols}));
      PTQWATCH_RETURN_IF_ERROR(
          queue.Run(DotRows<double>{.layers = 1,
                                    .rows = rows,
                                    .width = cols,
                                    .parts = kParts,
                                    .product = {wide_product_, 0},
                                    .x = {wide_x_, 0},
                                    .x_cols = cols,
                                    .partials = {partials_.at(layer) + 2 * done, 0}}));
    }
  }
  return Finish(queue, position, done);
}

absl::Status Tracer::Finish(Queue& queue, int position, int64_t count) {
  for (int i = 0; i < 2; ++i) {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(Collapse{.layers = group_.layers,
                                                .count = count,
                                                .spacing = 2,
                                                .values = {partials_.first + i, partials_.stride},
                                                .numbers = group_.numbers,
                                                .position = position + i}));
  }
  return absl::OkStatus();
}

absl::Status AddTraces(const LayerGroup& group, Queue& queue) {
  const Attempt& attempt = group.attempt;
  if (attempt.loss == Precision::kNone && attempt.rtn_loss == Precision::kNone &&
      attempt.energy == Precision::kNone) {
    return absl::OkStatus();
  }
  ArenaScope scope(queue.arena());
  Tracer tracer(group);
  PTQWATCH_RETURN_IF_ERROR(tracer.Take(queue.arena()));
  PTQWATCH_RETURN_IF_ERROR(tracer.Prepare(queue));
  const Subtract weight{
      .layers = group.layers, .size = group.size(), .from = group.weight, .out = tracer.x()};
  if (attempt.loss != Precision::kNone && !attempt.method->channel_scale) {
    Subtract error = weight;
    error.minus = Const(group.dequantized);
    PTQWATCH_RETURN_IF_ERROR(queue.Run(error));
    PTQWATCH_RETURN_IF_ERROR(tracer.Run(queue, attempt.loss, kLoss));
  }
  if (attempt.rtn_loss != Precision::kNone) {
    PTQWATCH_RETURN_IF_ERROR(RoundingError(group, tracer.x(), queue));
    PTQWATCH_RETURN_IF_ERROR(tracer.Run(queue, attempt.rtn_loss, kRtnLoss));
  }
  if (attempt.energy == Precision::kNone) return absl::OkStatus();
  PTQWATCH_RETURN_IF_ERROR(queue.Run(weight));
  return tracer.Run(queue, attempt.energy, kEnergy);
}

}  // namespace ptqwatch::internal
