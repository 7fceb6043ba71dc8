#ifndef PTQWATCH_CURVATURE_HUTCHINSON_H_
#define PTQWATCH_CURVATURE_HUTCHINSON_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

struct HutchinsonOptions {
  /// Stops when the trace's 95 % interval is as narrow as that of a normal estimate with this
  /// relative standard error ...
  double relative_stderr = 0.1;
  int min_probes = 8;  ///< at least 2
  /// ... or after this many probes. Equal to min_probes: a fixed number.
  int max_probes = 32;
};

struct Estimate {
  double value = 0;
  double stderr_value = 0;
  /// Half the width of the 95 % confidence interval: the standard error times Student's t of
  /// probes - 1 degrees of freedom, and, where the estimate itself decided when to stop, times
  /// 1 + 1 / probes, for stopping at a small standard error favours those that are too small.
  double interval = 0;
};

struct TraceEstimate {
  Estimate trace;                 ///< of the whole
  std::vector<Estimate> by_part;  ///< of each part's diagonal block; they sum up to the whole
  /// The same by layer: parts whose names differ in what follows the last '.' alone (weight, bias).
  std::vector<std::pair<std::string, Estimate>> by_layer;
  Estimate weighted;  ///< sum of part_weights[l] * trace of part l
  int probes = 0;
  bool converged = false;
  double seconds = 0;
};

/// tr(H) as the mean of z'Hz over random sign vectors z (Hutchinson 1990), and, of the same
/// products, the trace of every part's block as the mean of z_l'(Hz)_l. What `known` says of H is
/// taken out and its trace added exactly (as Hutch++ does, Meyer et al. 2021): z'(H - A)z + tr(A)
/// with A = Q M Q' - level P has the same mean, by part too, and none of the variance that the
/// large eigenvalues make. `known` must not depend on the z. The i-th z is a function of the run's
/// seed and i alone, so that the estimates of two snapshots are paired. `part_weights` has one
/// entry a part. Memory: 2 vectors. Errors: as SymmetricOperator::Apply, ResourceExhausted from the
/// context's budget, FailedPrecondition where every product is zero.
absl::StatusOr<TraceEstimate> EstimateTrace(SymmetricOperator& hessian,
                                            absl::Span<const double> part_weights,
                                            const KrylovSpace& known,
                                            const HutchinsonOptions& options,
                                            const ExecutionContext& context);

/// The 97.5 % quantile of Student's t; within 0.2 % of it from 6 degrees of freedom on.
double StudentQuantile(int degrees_of_freedom);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HUTCHINSON_H_
