#ifndef PTQWATCH_SESSION_MEAN_BATCHES_H_
#define PTQWATCH_SESSION_MEAN_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// If the losses closure returns the mean over a batch, cuts each batch into up to `pieces` pieces
/// along dimension 0, so that a standard error has more than one unit per batch. Returns the
/// batches unchanged if the closure returns more than one value, if they do not all have the same
/// number of rows, divisible by the number of pieces, or if the mean loss of the first batch's
/// pieces differs from that batch's loss.
/// Costs two evaluations of the first batch.
std::vector<Batch> CutMeanBatches(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t pieces);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MEAN_BATCHES_H_
