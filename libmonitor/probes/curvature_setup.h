#ifndef PTQWATCH_PROBES_CURVATURE_SETUP_H_
#define PTQWATCH_PROBES_CURVATURE_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capture/capture_plan.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/replica_surface.h"
#include "curvature/spectrum.h"
#include "ptqwatch/curvature.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// The loss whose curvature is measured: which parameters it is a function of, and on which
/// batches.
struct CurvatureSetup {
  std::vector<int> scope;  ///< entries of the replica's table
  int64_t parameters = 0;  ///< in the scope
  std::vector<Batch> batches;
  double total_weight = 0;  ///< of the losses
  int64_t tokens = 0;
  HessianMode mode = HessianMode::kAuto;  ///< chosen
  std::optional<int64_t> graph_bytes;     ///< of all batches, estimated

  /// Evaluates the batches once, and finds out how products with the Hessian can be made
  /// (ChooseHessianMode). FailedPrecondition saying why they cannot. `scope` and `batches` are
  /// given.
  absl::Status Prepare(Replica& replica, const CurvatureOptions& options,
                       const ExecutionContext& context);

  /// Of every parameter in the scope, the mean of its squared weights in the loaded snapshot.
  std::vector<double> MeanSquares(const Replica& replica) const;

  /// The setup must outlive the surface.
  absl::StatusOr<std::unique_ptr<ReplicaSurface>> MakeSurface(Replica& replica) const {
    return ReplicaSurface::Create(&replica, scope, &batches, total_weight);
  }
};

/// The searches and estimators as `options` want them.
EigenpairOptions EigenpairOptionsFrom(const CurvatureOptions& options, const VectorSpace& space);
SpectrumOptions SpectrumOptionsFrom(const CurvatureOptions& options, const VectorSpace& space);
HutchinsonOptions HutchinsonOptionsFrom(const CurvatureOptions& options);

/// The parameters in the scope of `options`, entries of the replica's table. `live` is that of the
/// live model: it knows which parameters are frozen. InvalidArgument for a glob that matches no
/// floating-point parameter.
absl::StatusOr<std::vector<int>> ScopeEntries(const Replica& replica, const TensorTable& live,
                                              const CapturePlan& plan,
                                              const CurvatureOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_CURVATURE_SETUP_H_
