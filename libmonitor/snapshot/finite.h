#ifndef PTQWATCH_SNAPSHOT_FINITE_H_
#define PTQWATCH_SNAPSHOT_FINITE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// DataLoss for the first tensor with a NaN or infinity: "'blocks.0.qkv.weight' has 3 non-finite
/// values".
absl::Status CheckFinite(const TensorTable& table);
/// Of these entries alone. Reads each once where all is finite.
absl::Status CheckFinite(const TensorTable& table, absl::Span<const int> entries);

/// FailedPrecondition if a loss that is not masked is NaN or infinite; says so of the weights, too.
absl::Status CheckFiniteLosses(const LossValues& losses, const Batch& batch,
                               const TensorTable& weights);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_FINITE_H_
