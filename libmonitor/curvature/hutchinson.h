#ifndef PTQWATCH_CURVATURE_HUTCHINSON_H_
#define PTQWATCH_CURVATURE_HUTCHINSON_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

struct HutchinsonOptions {
  double relative_stderr = 0.1;  ///< stops when the trace's standard error is this share of it
  int min_probes = 8;
  int max_probes = 32;
};

struct Estimate {
  double value = 0;
  double stderr_value = 0;
};

struct TraceEstimate {
  Estimate trace;                 ///< of the whole
  std::vector<Estimate> by_part;  ///< of each part's diagonal block; they sum up to the whole
  Estimate weighted;              ///< sum of part_weights[l] * trace of part l
  int probes = 0;
};

/// tr(H) as the mean of z'Hz over random sign vectors z (Hutchinson 1990), and, of the same
/// products, the trace of every part's block as the mean of z_l'(Hz)_l. The i-th z is a function of
/// the run's seed and i alone, so that the estimates of two snapshots are paired. `part_weights`
/// has one entry a part. Memory: 2 vectors. Errors as SymmetricOperator::Apply.
absl::StatusOr<TraceEstimate> EstimateTrace(ExecutionContext& context, SymmetricOperator& hessian,
                                            absl::Span<const double> part_weights,
                                            const HutchinsonOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_HUTCHINSON_H_
