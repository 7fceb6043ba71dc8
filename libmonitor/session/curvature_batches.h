#ifndef PTQWATCH_SESSION_CURVATURE_BATCHES_H_
#define PTQWATCH_SESSION_CURVATURE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// How many sequences of the probe batches serve as curvature batches if the subject has none.
inline constexpr int64_t kDefaultCurvatureSequences = 64;

/// The first `sequences` sequences of `batches`. The last batch is cut along dimension 0 if all its
/// tensors and its losses have one row for each sequence, and is taken whole otherwise.
std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences);

/// The same sequences in batches of at most `sequences`, whose graphs take less memory.
/// FailedPrecondition if a tensor or the losses do not have one row for each sequence, or if the
/// pieces do not have the loss of the whole batch.
absl::StatusOr<std::vector<Batch>> MicroBatches(Replica& replica, const std::vector<Batch>& batches,
                                                int64_t sequences);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_CURVATURE_BATCHES_H_
