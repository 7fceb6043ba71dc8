#ifndef PTQWATCH_SESSION_CURVATURE_BATCHES_H_
#define PTQWATCH_SESSION_CURVATURE_BATCHES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// How many sequences of the probe batches serve as curvature batches if the subject has none.
inline constexpr int64_t kDefaultCurvatureSequences = 64;

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
