#ifndef PTQWATCH_SESSION_MEAN_BATCHES_H_
#define PTQWATCH_SESSION_MEAN_BATCHES_H_

#include <cstdint>
#include <vector>

#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// If the losses closure returns the mean over a batch, cuts each batch into up to `pieces` pieces
/// along dimension 0, so that a standard error has more than one unit per batch. Returns the
/// batches unchanged if the closure returns more than one value, if they do not all have the same
/// number of rows, divisible by the number of pieces, or if the mean loss of a batch's pieces
/// differs from that batch's loss, as it does if sequences have different numbers of unmasked
/// tokens. Costs two evaluations of the first batch, and of each other one within `max_seconds`.
std::vector<Batch> CutMeanBatches(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t pieces, double max_seconds, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_MEAN_BATCHES_H_
