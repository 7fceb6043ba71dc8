#ifndef PTQWATCH_SNAPSHOT_BATCHES_H_
#define PTQWATCH_SNAPSHOT_BATCHES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// Copies of `batches` in memory of their own on `device`. FailedPrecondition, naming `what`, if
/// LibTorch cannot copy one; ResourceExhausted if memory runs out.
absl::StatusOr<std::vector<Batch>> CopyBatches(const std::vector<Batch>& batches, at::Device device,
                                               std::string_view what);

/// "int64 [8, 65], float [8]": types and shapes of its tensors.
std::string DescribeBatch(const Batch& batch);

/// The status with a message that begins with, say, "probe batch 3: ".
absl::Status OfBatch(std::string_view what, size_t index, const absl::Status& status);

/// Of all their tensors.
int64_t BytesOf(const std::vector<Batch>& batches);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_BATCHES_H_
