#ifndef PTQWATCH_QUANTIZE_NF4_H_
#define PTQWATCH_QUANTIZE_NF4_H_

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// NF4. Fills in everything but the column counts.
absl::StatusOr<QuantizedWeight> Nf4(const Layer& layer, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_NF4_H_
