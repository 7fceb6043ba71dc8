#ifndef PTQWATCH_CURVATURE_HUTCHINSON_H_
#define PTQWATCH_CURVATURE_HUTCHINSON_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"

namespace ptqwatch::internal {

struct HutchinsonOptions {
  /// Stops when the trace's 95 % interval is as narrow as that of a normal estimate with this
  /// relative standard error, or after max_probes probe vectors.
  double relative_stderr = 0.1;
  int min_probes = 8;  ///< at least 2
  /// If equal to min_probes, the number of probe vectors is fixed.
  int max_probes = 32;
};

/// Estimates tr(H) as the mean of z'Hz over random sign vectors z (Hutchinson 1990). The same
/// products give the trace of every part's diagonal block, as the mean of z_l'(Hz)_l. The parts sum
/// up to the whole; a layer is the sum of the parts whose names differ only after the last '.'
/// (weight, bias).
///
/// The variance from the large eigenvalues is removed as in Hutch++ (Meyer et al. 2021): with A = Q
/// M Q' - level P of `known`, the estimate is the mean of z'(H - A)z plus tr(A), which has the same
/// expectation, by part too. `known` must not depend on the z.
///
/// The i-th z is a function of the run's seed and i alone, so that the estimates of two snapshots
/// are paired. `part_weights` has one entry per piece of the space: the weighted trace is the sum
/// of the parts' traces times their weights. `trace_interval` is the standard error times Student's
/// t for probes - 1 degrees of freedom. If the estimate itself decided when to stop, the interval
/// is also multiplied by 1 + 1 / probes, because stopping at a small standard error favours those
/// that are too small.
///
/// If H is a sum over batches, their own traces come from the same products. `trace_batch_stderr`
/// is the standard error of their mean, with the variance that the probe vectors alone explain
/// subtracted (the variance components of a two-way layout, batches by probes).
///
/// Memory: 2 vectors. Errors: as SymmetricOperator::Apply; ResourceExhausted from the context's
/// budget; FailedPrecondition if every product is zero.
absl::StatusOr<HessianTrace> EstimateTrace(SymmetricOperator& hessian,
                                           absl::Span<const double> part_weights,
                                           const KrylovSpace& known,
                                           const HutchinsonOptions& options,
                                           const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HUTCHINSON_H_
