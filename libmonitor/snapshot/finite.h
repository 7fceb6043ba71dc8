#ifndef PTQWATCH_SNAPSHOT_FINITE_H_
#define PTQWATCH_SNAPSHOT_FINITE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// DataLoss for the first tensor with a NaN or infinity: "'blocks.0.qkv.weight' has 3 non-finite
/// values".
absl::Status CheckFinite(const TensorTable& table);
/// Of these entries alone. Reads each once where all is finite.
absl::Status CheckFinite(const TensorTable& table, absl::Span<const int> entries);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_FINITE_H_
