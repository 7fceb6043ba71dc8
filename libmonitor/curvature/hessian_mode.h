#ifndef PTQWATCH_CURVATURE_HESSIAN_MODE_H_
#define PTQWATCH_CURVATURE_HESSIAN_MODE_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "curvature/loss_surface.h"
#include "ptqwatch/curvature.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

struct HessianChoice {
  HessianMode mode = HessianMode::kAuto;
  /// Of the gradient graphs of all batches, as many times those of the first one. Not known for
  /// finite differences, nor where LibTorch reports no operators.
  std::optional<int64_t> graph_bytes;
};

/// How products with the Hessian of `surface` are to be made, found out on its first batch: by the
/// gradient's graph where that can be differentiated and the products are finite, symmetric (u'Hv =
/// v'Hu for two random vectors) and no more than a third away from a finite difference (where there
/// is one: an operator's backward that takes for constant what is not gives a symmetric, wrong
/// product); the graph is retained where those of all batches are known to fit into
/// `max_graph_bytes`. Else by finite differences where these do not depend on their step. With
/// `asked` other than kAuto only that mode is tried, whatever its graphs take. Costs some ten
/// gradients of that batch. FailedPrecondition saying why none works.
absl::StatusOr<HessianChoice> ChooseHessianMode(LossSurface* surface, HessianMode asked,
                                                int64_t max_graph_bytes,
                                                const ExecutionContext& context);

/// The next mode of less memory; nothing below finite differences.
std::optional<HessianMode> SmallerMode(HessianMode mode);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HESSIAN_MODE_H_
