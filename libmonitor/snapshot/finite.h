#ifndef PTQWATCH_SNAPSHOT_FINITE_H_
#define PTQWATCH_SNAPSHOT_FINITE_H_

#include <string_view>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// Returns DataLoss for a tensor with a NaN or infinity: "'w' has 3 non-finite values". Reads it
/// once if all values are finite.
absl::Status CheckFinite(std::string_view name, const at::Tensor& tensor);
/// Same, for the first such tensor of a table.
absl::Status CheckFinite(const TensorTable& table);
/// Same, for these entries only.
absl::Status CheckFinite(const TensorTable& table, absl::Span<const int> entries);

/// FailedPrecondition if an unmasked loss is NaN or infinite; also names a parameter or buffer that
/// is not finite. Likewise if a loss weight is negative, NaN or infinite.
absl::Status CheckFiniteLosses(const LossValues& losses, const Batch& batch,
                               const TensorTable& weights);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_FINITE_H_
