#ifndef PTQWATCH_ANALYSIS_CONVERGENCE_H_
#define PTQWATCH_ANALYSIS_CONVERGENCE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "analysis/history.h"

namespace ptqwatch::internal {

/// The step at which the full-precision loss stopped improving, from the snapshots after the
/// warm-up. In a running series of its logarithm, level is the smallest median of five snapshots in
/// a row, and s the scatter between snapshots, from second differences. The step is that of the
/// first snapshot whose median of three is at most level + 2 s. It counts if, with 95 % confidence,
/// the loss has since improved by less than 0.5 % a doubling of the steps, over at least eight
/// snapshots (a robust regression on the logarithm of the step).
///
/// If the loss still improves and the learning rate falls, only the snapshots before its fall are
/// looked at: a decay makes a loss that has stopped improve again. nullopt if the loss improves, or
/// if the scatter hides whether it does. Losses that are not positive are left out.
///
/// A step that is `known` from fewer snapshots is returned unless, with 95 % confidence, the loss
/// has since improved by more than that while the rate was high.
std::optional<int64_t> LossConvergedStep(const History& history,
                                         std::optional<int64_t> known = std::nullopt);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_CONVERGENCE_H_
