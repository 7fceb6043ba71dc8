#ifndef PTQWATCH_SNAPSHOT_BATCHES_H_
#define PTQWATCH_SNAPSHOT_BATCHES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// Copies `batches` into separate memory on `device`. Returns FailedPrecondition, naming `what`, if
/// LibTorch cannot copy a batch, and ResourceExhausted if memory runs out.
absl::StatusOr<std::vector<Batch>> CopyBatches(const std::vector<Batch>& batches, at::Device device,
                                               std::string_view what);

/// The dtypes and shapes of the batch's tensors, for example "int64 [8, 65], float [8]".
std::string DescribeBatch(const Batch& batch);

/// Prefixes the status message with the batch, for example "probe batch 3: ".
absl::Status OfBatch(std::string_view what, size_t index, const absl::Status& status);

/// Total size of all tensors of the batches.
int64_t BytesOf(const std::vector<Batch>& batches);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_BATCHES_H_
