#include "jobs/replica_slice.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "curvature/replica_surface.h"
#include "session/curvature_batches.h"

namespace ptqwatch::internal {

absl::StatusOr<LossSlice> MeasureReplicaSlice(Replica& replica, const std::vector<Batch>& batches,
                                              std::vector<Replica::Override> previous,
                                              std::vector<Replica::Override> quantized,
                                              const SliceOptions& options, SliceProgress progress,
                                              const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  PTQWATCH_ASSIGN_OR_RETURN(const BatchTotals totals, TotalsOf(replica, batches, context));
  const std::vector<int> scope = FloatingParameters(replica.table());
  PTQWATCH_ASSIGN_OR_RETURN(const auto surface,
                            ReplicaSurface::Create(&replica, scope, &batches, totals.weight));
  // Both directions and the vectors that MeasureSlice makes from them.
  Reservation held(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(4 * surface->space().bytes(), "the plane of a slice"));
  const Vector to_previous = surface->Displacement(std::exchange(previous, {}));
  const Vector to_quantized = surface->Displacement(std::exchange(quantized, {}));
  PTQWATCH_ASSIGN_OR_RETURN(LossSlice slice, MeasureSlice(*surface, to_previous, to_quantized,
                                                          options, progress, context));
  slice.batch_tokens = totals.tokens;
  ++slice.loss_evaluations;  // for the pass above, which counts tokens and weights
  return slice;
}

}  // namespace ptqwatch::internal
