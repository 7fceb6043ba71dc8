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

/// FailedPrecondition if the losses closure returns one value for `batch`, and the values of its
/// halves have it as their sum. Ok if the batch cannot be cut. Costs an evaluation of the batch,
/// and two of its halves if that gives one value.
absl::Status CheckIsNoSum(Replica& replica, const Batch& batch);

/// Batches of one kind.
struct CheckedBatches {
  std::string_view what;  ///< "probe"
  const std::vector<Batch>* batches = nullptr;
  size_t first = 0;  ///< those before it are known to be good
};

/// Evaluates each batch once, the first ones of all kinds first. Fails at the first batch whose
/// losses throw, have an unusable shape or are not finite, which the error names. Stops if one more
/// batch would not end within `max_seconds`. Returns how many batches of which kind were left out,
/// and the seconds that they would take, as text: "52 of 64 probe batches (240 s)"; empty if all
/// were evaluated.
absl::StatusOr<std::string> CheckEachBatch(Replica& replica,
                                           const std::vector<CheckedBatches>& kinds,
                                           double max_seconds, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_BATCH_CHECKS_H_
