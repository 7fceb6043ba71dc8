#ifndef PTQWATCH_QUANTIZE_KERNELS_FEEDBACK_MATRIX_H_
#define PTQWATCH_QUANTIZE_KERNELS_FEEDBACK_MATRIX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "quantize/kernels/aligned_buffer.h"
#include "quantize/kernels/cholesky.h"

namespace ptqwatch::internal {

/// The GPTQ loop's view of H: N[j, k] = R[j, k] / R[k, k] for j < k in float32, the diagonal of R,
/// and the order of the columns. It depends on neither weight nor grid, so all quantizers of a
/// layer can share it. Immutable.
///
/// N is packed for the micro kernel. For each block of columns it holds square pieces from the top
/// down to the diagonal. A piece is [quad][row][4], where a quad is four columns. It stays in the
/// second-level cache while all rows of a group use it.
class FeedbackMatrix {
 public:
  /// Columns of a block, and rows of a piece.
  static constexpr int64_t kBlock = 128;

  /// `factor` is R in `order`; order[k] is the column handled at position k. Cost: copies cols^2 /
  /// 2 numbers. Errors: Cancelled, DeadlineExceeded.
  static absl::StatusOr<FeedbackMatrix> Pack(const UpperFactor& factor, std::vector<int64_t> order,
                                             const ExecutionContext& context);
  /// Memory of a matrix: about 2 cols^2 bytes.
  static int64_t Bytes(int64_t cols);

  const std::vector<int64_t>& order() const { return order_; }
  int64_t quads() const { return quads_; }
  /// The rows of a quad from `row` on. `row` must begin a block or lie in the diagonal one. The
  /// next quad follows kQuad numbers later.
  static constexpr int64_t kQuad = 4 * kBlock;
  const float* At(int64_t row, int64_t quad) const { return Place(row, quad); }
  double diagonal(int64_t k) const { return diagonal_[static_cast<size_t>(k)]; }

 private:
  explicit FeedbackMatrix(std::vector<int64_t> order);

  static constexpr int64_t kPiece = kBlock * kBlock;
  static int64_t Begin(int64_t block) { return kPiece * block * (block + 1) / 2; }
  float* Place(int64_t row, int64_t quad) const {
    return values_.get() + Begin(4 * quad / kBlock) + row / kBlock * kPiece +
           4 * quad % kBlock * kBlock + row % kBlock * 4;
  }
  void FillQuad(const UpperFactor& factor, int64_t q, double* column);

  std::vector<int64_t> order_;
  int64_t quads_;
  AlignedBuffer<float> values_;
  std::vector<double> diagonal_;  // followed by a few zeros
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_FEEDBACK_MATRIX_H_
