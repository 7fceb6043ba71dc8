#include "curvature/loss_surface.h"

#include <cmath>

namespace ptqwatch::internal {

absl::StatusOr<double> MeanLoss(LossSurface& surface, const ExecutionContext& context) {
  double loss = 0;
  for (size_t i = 0; i < surface.batches(); ++i) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    absl::StatusOr<at::Tensor> batch = surface.Loss(i, /*with_graph=*/false);
    if (!batch.ok()) return batch.status();
    loss += batch->item<double>();
  }
  if (!std::isfinite(loss)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  return loss;
}

}  // namespace ptqwatch::internal
