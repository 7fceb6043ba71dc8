#ifndef PTQWATCH_QUANTIZE_FIT_GRID_H_
#define PTQWATCH_QUANTIZE_FIT_GRID_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "quantize/kernels/grid.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// Fits `grid` to `weight`, of the layer's shape. Where the spec asks for clipping, errors
/// are weighted by diag(H), or by 1 without H. Adds to `clipped_groups`. False if a scale
/// overflows. Errors: Cancelled, DeadlineExceeded.
absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context);

/// The result for a layer whose scales overflow.
QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_FIT_GRID_H_
