#include "curvature/loss_surface.h"

#include <cmath>

#include "base/status_macros.h"

namespace ptqwatch::internal {

absl::StatusOr<double> MeanLoss(LossSurface& surface, const ExecutionContext& context) {
  double loss = 0;
  for (size_t i = 0; i < surface.batches(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor batch, surface.Loss(i, /*with_graph=*/false));
    loss += batch.item<double>();
  }
  if (!std::isfinite(loss)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  return loss;
}

}  // namespace ptqwatch::internal
