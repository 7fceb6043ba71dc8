#ifndef PTQWATCH_QUANTIZE_AWQ_H_
#define PTQWATCH_QUANTIZE_AWQ_H_

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// AWQ: of 20 channel scales the one with the smallest layer loss. Fills in everything but the
/// column counts. REQUIRES: layer.h, and statistics with abs_sum.
absl::StatusOr<QuantizedWeight> Awq(const Layer& layer, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_AWQ_H_
