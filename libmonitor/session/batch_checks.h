#ifndef PTQWATCH_SESSION_BATCH_CHECKS_H_
#define PTQWATCH_SESSION_BATCH_CHECKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Returns FailedPrecondition if the losses closure returns one value for `batch` and that value is
/// the sum of the values of its halves. Returns ok if the batch cannot be cut, or if a half has the
/// loss 0.
/// Costs one evaluation of the batch and, if that gives one value, one of each half.
absl::Status CheckIsNoSum(Replica& replica, const Batch& batch);

/// Batches of one kind.
struct CheckedBatches {
  std::string_view what;  ///< for example "probe"
  const std::vector<Batch>* batches = nullptr;
  size_t first = 0;  ///< batches before this index are known to be good
};

/// Evaluates each batch once, beginning with the first batch of every kind. Fails at the first
/// batch whose losses throw, have an unusable shape or are not finite, and names it in the error.
/// Stops when one more batch would exceed `max_seconds`. Returns how many batches of which kind
/// were left out and their estimated seconds, for example "52 of 64 probe batches (240 s)"; empty
/// if all were evaluated.
absl::StatusOr<std::string> CheckEachBatch(Replica& replica,
                                           const std::vector<CheckedBatches>& kinds,
                                           double max_seconds, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_BATCH_CHECKS_H_
