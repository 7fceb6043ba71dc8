#ifndef PTQWATCH_QUANTIZE_METHODS_H_
#define PTQWATCH_QUANTIZE_METHODS_H_

#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "quantize/grid.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// The methods behind Quantize. Each fills in everything of a result but the column counts.
/// Errors: Cancelled, DeadlineExceeded, ResourceExhausted.

/// `status` and `detail` say why it stands in for another method.
absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail, const ExecutionContext& context);
/// Needs H. With ten times the damping after each failure to factorise, then round to nearest.
absl::StatusOr<QuantizedWeight> Gptq(const Layer& layer, const ExecutionContext& context);
/// Needs H and statistics with abs_sum.
absl::StatusOr<QuantizedWeight> Awq(const Layer& layer, const ExecutionContext& context);
/// Needs statistics with abs_max unless the threshold is 0.
absl::StatusOr<QuantizedWeight> LlmInt8(const Layer& layer, const ExecutionContext& context);
absl::StatusOr<QuantizedWeight> Nf4(const Layer& layer, const ExecutionContext& context);

/// The grids of a weight, clipped where the spec asks for it, by diag(H) or by 1 without H. False
/// when a scale overflows. Adds to `clipped_groups`.
absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context);

/// The result of a layer that FitGrid has no grid for.
QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_METHODS_H_
