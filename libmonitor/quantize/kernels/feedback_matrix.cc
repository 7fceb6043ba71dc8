#include "quantize/kernels/feedback_matrix.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "quantize/kernels/parallel.h"

namespace ptqwatch::internal {
namespace {

int64_t Blocks(int64_t cols) {
  return (cols + FeedbackMatrix::kBlock - 1) / FeedbackMatrix::kBlock;
}

}  // namespace

FeedbackMatrix::FeedbackMatrix(std::vector<int64_t> order)
    : order_(std::move(order)),
      quads_((static_cast<int64_t>(order_.size()) + 3) / 4),
      values_(MakeAligned<float>(Begin(Blocks(4 * quads_)))),
      diagonal_(static_cast<size_t>(4 * quads_)) {}

int64_t FeedbackMatrix::Bytes(int64_t cols) {
  return Begin(Blocks(cols)) * static_cast<int64_t>(sizeof(float)) +
         cols * static_cast<int64_t>(sizeof(double) + sizeof(int64_t));
}

absl::StatusOr<FeedbackMatrix> FeedbackMatrix::Pack(const UpperFactor& factor,
                                                    std::vector<int64_t> order,
                                                    const ExecutionContext& context) {
  constexpr int64_t kTogether = 16;
  const int64_t size = factor.size();
  FeedbackMatrix feedback(std::move(order));
  // Copying a number takes about as long as ten operations.
  ThreadTeam team(10.0 * static_cast<double>(size) * static_cast<double>(size), context);
  PTQWATCH_RETURN_IF_ERROR(team.ForEach((feedback.quads_ + kTogether - 1) / kTogether,
                                        [&](int, int64_t i, const ExecutionContext& piece_context) {
                                          std::vector<double> column(static_cast<size_t>(size));
                                          const int64_t end =
                                              std::min(feedback.quads_, (i + 1) * kTogether);
                                          for (int64_t q = i * kTogether; q < end; ++q) {
                                            feedback.FillQuad(factor, q, column.data());
                                          }
                                          return piece_context.Checkpoint();
                                        }));
  return feedback;
}

void FeedbackMatrix::FillQuad(const UpperFactor& factor, int64_t q, double* column) {
  const int64_t size = factor.size();
  for (int64_t c = 0; c < 4; ++c) {
    const int64_t k = 4 * q + c;
    const int64_t above = k < size ? k : 0;
    double inverse = 0;
    if (k < size) {
      factor.CopyColumn(k, k + 1, column);
      diagonal_[static_cast<size_t>(k)] = column[k];
      inverse = 1 / column[k];
    }
    for (int64_t j0 = 0; j0 < 4 * q + 4; j0 += kBlock) {
      float* out = Place(j0, q) + c;
      const int64_t end = std::min(j0 + kBlock, 4 * q + 4);
      const int64_t filled = std::clamp(above, j0, end);
      for (int64_t j = j0; j < filled; ++j, out += 4) {
        *out = static_cast<float>(column[j] * inverse);
      }
      for (int64_t j = filled; j < end; ++j, out += 4) *out = 0;
    }
  }
}

}  // namespace ptqwatch::internal
