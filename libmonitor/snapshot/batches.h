#ifndef PTQWATCH_SNAPSHOT_BATCHES_H_
#define PTQWATCH_SNAPSHOT_BATCHES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// Copies in memory of our own on `device`. FailedPrecondition, naming `what`, where LibTorch
/// cannot.
absl::StatusOr<std::vector<Batch>> CopyBatches(const std::vector<Batch>& batches, at::Device device,
                                               std::string_view what);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_BATCHES_H_
