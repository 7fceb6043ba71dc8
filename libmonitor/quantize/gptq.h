#ifndef PTQWATCH_QUANTIZE_GPTQ_H_
#define PTQWATCH_QUANTIZE_GPTQ_H_

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// GPTQ. If H cannot be factorised, the damping is multiplied by ten until it can, up to 1; after
/// that RTN stands in. Fills in everything but the column counts. REQUIRES: layer.h.
absl::StatusOr<QuantizedWeight> Gptq(const Layer& layer, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_GPTQ_H_
