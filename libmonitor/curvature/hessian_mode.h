#ifndef PTQWATCH_CURVATURE_HESSIAN_MODE_H_
#define PTQWATCH_CURVATURE_HESSIAN_MODE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

struct HessianChoice {
  HessianMode mode = HessianMode::kAuto;
  /// The size of the gradient graphs of all batches, extrapolated from the first one. Unknown for
  /// finite differences, and if LibTorch reports no operators.
  std::optional<int64_t> graph_bytes;
  /// Graphs only: a finite difference along a random vector was within 1 % of the product, and of
  /// one with half the step, so that one-sided differences may stand in for products in searches.
  bool rough_differences = false;
  /// Why kAuto chose finite differences: what the trial of graphs returned.
  std::string detail = {};
};

/// Chooses how to compute products with the Hessian of `surface`, by trials on its first batch.
///
/// The gradient's graph is used if it can be differentiated and its products are finite, symmetric
/// (u'Hv = v'Hu for two random vectors), and as near to a finite difference as that is to one with
/// half the step. That last check finds operators whose backward treats a variable as a constant:
/// their products are symmetric and wrong. It is left out if differences are too rough, along a
/// random direction and along the gradient. The graphs are retained if those of all batches are
/// known to fit into `max_graph_bytes`. Otherwise finite differences are used, if they do not
/// depend on their step.
///
/// If `asked` is not kAuto, only that mode is tried, whatever memory its graphs take. Costs about
/// 15 gradients of the batch, 25 if differences are rough. Returns FailedPrecondition, with the
/// reason, if no mode works.
absl::StatusOr<HessianChoice> ChooseHessianMode(LossSurface* surface, HessianMode asked,
                                                int64_t max_graph_bytes,
                                                const ExecutionContext& context);

/// The next mode, which needs less memory; empty after finite differences.
std::optional<HessianMode> SmallerMode(HessianMode mode);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HESSIAN_MODE_H_
