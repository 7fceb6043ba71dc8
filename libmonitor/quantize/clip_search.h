#ifndef PTQWATCH_QUANTIZE_CLIP_SEARCH_H_
#define PTQWATCH_QUANTIZE_CLIP_SEARCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "quantize/grid.h"

namespace ptqwatch::internal {

struct ClipResult {
  bool fits = true;    ///< false: the grid of a group overflows its scale dtype
  int64_t groups = 0;  ///< how many, over all rows, got less than their whole range
};

/// Fits the grid of every group to [p lo, p hi], with that p of 1, 0.99, ..., 0.21 for which the
/// sum of importance_j (w_j - q_j)^2 over the group is smallest, the first on a tie. Errors are
/// float32, squares and sums float64. `importance` is [cols]. Cost: about 80 * 4 operations a
/// weight; memory: about 200 bytes an input of a group.
absl::StatusOr<ClipResult> FitClippedByImportance(MatrixView weight, const double* importance,
                                                  Grid* grid, const ExecutionContext& context);

/// The clipping of AWQ (arXiv 2306.00978, section 3.2 and its released code): the grids of W *
/// channel_scale, each group cut to +-p max|w|, with that p of 1, 0.95, ..., 0.55 for which dW S_gg
/// dW^T is smallest, the first on a tie; dW = W - q / channel_scale, S_gg the group's diagonal
/// block of `sum`, [cols, cols]. Products in float64. Cost: 10 * rows * cols * group FLOP; memory:
/// 4 group^2 bytes.
absl::StatusOr<ClipResult> FitClippedByOutput(MatrixView weight, const float* channel_scale,
                                              const double* sum, Grid* grid,
                                              const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_CLIP_SEARCH_H_
