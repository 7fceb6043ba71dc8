#ifndef PTQWATCH_QUANTIZE_RTN_H_
#define PTQWATCH_QUANTIZE_RTN_H_

#include <string>

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// Round to nearest. `status` and `detail` go into the result: they say why RTN stands in for
/// another method. Fills in everything but the column counts.
absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_RTN_H_
