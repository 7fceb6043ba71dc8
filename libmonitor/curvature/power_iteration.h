#ifndef PTQWATCH_CURVATURE_POWER_ITERATION_H_
#define PTQWATCH_CURVATURE_POWER_ITERATION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "curvature/eigenpair.h"
#include "curvature/symmetric_operator.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// ExtremeEigenpair by power iteration, in kPowerIterationVectors vectors. It converges to the
/// eigenvalue of largest magnitude; if that is at the other end of the spectrum, the iteration
/// continues with H minus that eigenvalue. Returns FailedPrecondition if the products are used up
/// before the wanted end is reached.
absl::StatusOr<EigenpairSearch> PowerIteration(SymmetricOperator& hessian, const WarmStart& start,
                                               const EigenpairOptions& options,
                                               absl::Span<const Vector> deflated,
                                               const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_POWER_ITERATION_H_
