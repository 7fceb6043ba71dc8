#ifndef PTQWATCH_QUANTIZE_KERNELS_CLIP_SEARCH_H_
#define PTQWATCH_QUANTIZE_KERNELS_CLIP_SEARCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/grid.h"

namespace ptqwatch::internal {

struct ClipResult {
  bool fits = true;    ///< false: the grid of a group overflows its scale dtype
  int64_t groups = 0;  ///< groups, over all rows, whose grid covers less than their range
};

/// Fits the grid of every group to [p lo, p hi]. p is the value among 1, 0.99, ..., 0.21 with the
/// smallest sum of importance_j (w_j - q_j)^2 over the group, the first on a tie. Errors are
/// float32, squares and sums float64. `importance` is [cols]. Cost: about 80 * 4 operations per
/// weight; memory: about 200 bytes per input of a group. Errors: Cancelled, DeadlineExceeded.
absl::StatusOr<ClipResult> FitClippedByImportance(MatrixView weight, const double* importance,
                                                  Grid* grid, const ExecutionContext& context);

/// AWQ's clipping (arXiv 2306.00978, section 3.2 and its released code). Fits the grids of W *
/// channel_scale with each group cut to +-p max|w|. p is the value among 1, 0.95, ..., 0.55 with
/// the smallest dW S_gg dW^T, the first on a tie. dW = W - q / channel_scale, and S_gg is the
/// group's diagonal block of `sum`, [cols, cols]. Products are float64. Cost: 10 * rows * cols *
/// group FLOP; memory: 4 group^2 bytes. Errors: Cancelled, DeadlineExceeded.
absl::StatusOr<ClipResult> FitClippedByOutput(MatrixView weight, const float* channel_scale,
                                              const double* sum, Grid* grid,
                                              const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_CLIP_SEARCH_H_
