#ifndef PTQWATCH_SESSION_MEAN_BATCHES_H_
#define PTQWATCH_SESSION_MEAN_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Where the losses closure returns the mean over a batch: the batches in up to `pieces` pieces
/// each, along dimension 0, so that a standard error has more than one unit a batch. The batches
/// are left as they are where the closure returns more than one value, where they do not all have
/// the same number of rows, divisible by that of the pieces, or where the pieces of the first one
/// do not have its loss in the mean. Costs two evaluations of the first batch.
std::vector<Batch> CutMeanBatches(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t pieces);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MEAN_BATCHES_H_
