#ifndef PTQWATCH_SESSION_CURVATURE_BATCHES_H_
#define PTQWATCH_SESSION_CURVATURE_BATCHES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The first probe sequences serve as curvature batches if the subject has none: so many, or where
/// they have fewer losses than that, as many as have them. A classifier's 64 losses would say
/// little about the change of its loss.
inline constexpr int64_t kDefaultCurvatureSequences = 64;
inline constexpr int64_t kDefaultCurvatureLosses = 1000;

/// The sums of loss weights and of tokens over batches.
struct BatchTotals {
  double weight = 0;
  int64_t tokens = 0;
};

/// Evaluates every batch once. FailedPrecondition where all weights are 0.
absl::StatusOr<BatchTotals> TotalsOf(Replica& replica, const std::vector<Batch>& batches,
                                     const ExecutionContext& context);

/// `rows` rows of every tensor, from row `begin`; nothing unless all of them have `all` rows.
std::optional<Batch> RowsOf(const Batch& batch, int64_t all, int64_t begin, int64_t rows);

/// Sequences in `batches`: rows of each one's first tensor.
int64_t CountSequences(const std::vector<Batch>& batches);

/// How many losses each sequence of `batch` has: 1 where the closure gives one for each example,
/// the steps of time where it gives them by token. Of a closure that returns one mean, that is
/// what the batch's first tensor looks like.
int64_t LossesASequence(const LossValues& losses, const Batch& batch);

/// How many sequences with so many losses each serve as default curvature batches.
int64_t DefaultCurvatureSequences(int64_t losses_a_sequence);

/// The first `sequences` sequences of `batches`. The last batch is cut along dimension 0 if all its
/// tensors have one row for each sequence, and its loss is one value for each sequence or a mean
/// over the batch; otherwise it is taken whole.
std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences);

/// The same sequences in batches of at most `sequences`, whose graphs take less memory.
/// FailedPrecondition if a tensor or the losses do not have one row for each sequence, or if the
/// pieces do not have the loss of the whole batch.
absl::StatusOr<std::vector<Batch>> MicroBatches(Replica& replica, const std::vector<Batch>& batches,
                                                int64_t sequences);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_CURVATURE_BATCHES_H_
