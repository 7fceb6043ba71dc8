#ifndef PTQWATCH_SESSION_CURVATURE_BATCHES_H_
#define PTQWATCH_SESSION_CURVATURE_BATCHES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// If the subject has no curvature batches, its first probe sequences serve:
/// kDefaultCurvatureSequences of them, or more until they have kDefaultCurvatureLosses losses. With
/// only 64 losses, a classifier's curvature would say little about the change of its loss.
inline constexpr int64_t kDefaultCurvatureSequences = 64;
inline constexpr int64_t kDefaultCurvatureLosses = 1000;

/// The sums of loss weights and of tokens over batches.
struct BatchTotals {
  double weight = 0;
  int64_t tokens = 0;
};

/// Evaluates every batch once. Returns FailedPrecondition if all weights are 0.
absl::StatusOr<BatchTotals> TotalsOf(Replica& replica, const std::vector<Batch>& batches,
                                     const ExecutionContext& context);

/// Rows [begin, begin + rows) of every tensor; empty unless all of them have `all` rows.
std::optional<Batch> RowsOf(const Batch& batch, int64_t all, int64_t begin, int64_t rows);

/// The number of sequences in `batches`: the rows of each batch's first tensor.
int64_t CountSequences(const std::vector<Batch>& batches);

/// The number of losses per sequence of `batch`: 1 if the closure returns one loss per example, the
/// time steps if it returns one per token. For a mean, derived from the batch's first tensor.
int64_t LossesASequence(const LossValues& losses, const Batch& batch);

/// The number of sequences, with this many losses each, that serve as default curvature batches.
int64_t DefaultCurvatureSequences(int64_t losses_a_sequence);

/// The first `sequences` sequences of `batches`, without batches that are masked out. The last
/// batch is cut along dimension 0 if each of its tensors has one row per sequence and its loss is
/// one value per sequence that does not depend on the others of its batch, or if it is a mean over
/// the batch and the first one; otherwise it is taken whole. Costs an evaluation of each batch up
/// to there.
std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences);

/// The same sequences in batches of at most `sequences`, whose graphs take less memory. Returns
/// FailedPrecondition if a tensor or the losses do not have one row per sequence, or if the pieces
/// do not have the loss of the whole batch.
absl::StatusOr<std::vector<Batch>> MicroBatches(Replica& replica, const std::vector<Batch>& batches,
                                                int64_t sequences);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_CURVATURE_BATCHES_H_
