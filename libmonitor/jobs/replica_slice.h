#ifndef PTQWATCH_JOBS_REPLICA_SLICE_H_
#define PTQWATCH_JOBS_REPLICA_SLICE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "curvature/loss_slice.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/loss_slice.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Measures the slice through three points: the loaded weights, and the same with the overrides
/// `previous` and with `quantized`. Frees the overrides as soon as possible. Errors as for
/// MeasureSlice, and FailedPrecondition if every token is masked out.
absl::StatusOr<LossSlice> MeasureReplicaSlice(Replica& replica, const std::vector<Batch>& batches,
                                              std::vector<Replica::Override> previous,
                                              std::vector<Replica::Override> quantized,
                                              const SliceOptions& options, SliceProgress progress,
                                              const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_REPLICA_SLICE_H_
