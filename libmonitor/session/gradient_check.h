#ifndef PTQWATCH_SESSION_GRADIENT_CHECK_H_
#define PTQWATCH_SESSION_GRADIENT_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "curvature/replica_surface.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Returns FailedPrecondition if the loss on the surface's first batch has no graph, or depends on
/// parameters of the scope without having a gradient to them: part of the curvature would be
/// missing.
/// Costs one gradient, and two evaluations if a parameter has none.
absl::Status CheckGradients(const Replica& replica, const std::vector<int>& scope,
                            ReplicaSurface& surface);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_GRADIENT_CHECK_H_
