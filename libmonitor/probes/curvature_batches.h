#ifndef PTQWATCH_PROBES_CURVATURE_BATCHES_H_
#define PTQWATCH_PROBES_CURVATURE_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Sequences of the probe batches that curvature is measured on where the subject names none.
inline constexpr int64_t kDefaultCurvatureSequences = 64;

/// The first `sequences` sequences of `batches`: whole batches, the last one cut along dimension 0
/// where all its tensors and its losses have one row a sequence (else it is taken whole).
std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences);

/// The same sequences in batches of at most `sequences`, so that a graph takes less memory.
/// FailedPrecondition where a tensor or the losses have not one row a sequence, or where the pieces
/// have another loss than the whole.
absl::StatusOr<std::vector<Batch>> MicroBatches(Replica& replica, const std::vector<Batch>& batches,
                                                int64_t sequences);

/// Sum of the loss weights of a batch: elements of `losses` where there are no weights.
double TotalWeight(const LossValues& losses);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_CURVATURE_BATCHES_H_
