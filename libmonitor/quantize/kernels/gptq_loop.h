#ifndef PTQWATCH_QUANTIZE_KERNELS_GPTQ_LOOP_H_
#define PTQWATCH_QUANTIZE_KERNELS_GPTQ_LOOP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/feedback_matrix.h"
#include "quantize/kernels/grid.h"

namespace ptqwatch::internal {

/// The error of the loop's result, dW = W - decoded.
struct GptqErrors {
  double damped_loss = 0;   ///< tr(dW A dW^T) for the factorised matrix A
  double squared_norm = 0;  ///< |dW|^2
};

/// The GPTQ loop in its LDLQ form (arXiv 2307.13304, section 3). With A = R R^T and N[j, k] = R[j,
/// k] / R[k, k], for columns k in the order of `feedback`:
///   w'_k = w_k + sum_{j < k} (w_j - q_j) N[j, k],   q_k = the grid point nearest to w'_k.
/// In float32; sums run in the order of j, in pieces of 128.
///
/// `codes` is [rows, cols] in original column order. Gives the same bits for any number of threads.
/// Cost: rows * cols^2 FLOP; memory: about 2000 cols bytes. Errors: Cancelled and DeadlineExceeded,
/// within a few milliseconds.
absl::StatusOr<GptqErrors> RunGptq(MatrixView weight, const Grid& grid,
                                   const FeedbackMatrix& feedback, uint8_t* codes,
                                   const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_GPTQ_LOOP_H_
