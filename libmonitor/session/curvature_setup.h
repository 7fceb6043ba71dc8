#ifndef PTQWATCH_SESSION_CURVATURE_SETUP_H_
#define PTQWATCH_SESSION_CURVATURE_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/hutchinson.h"
#include "curvature/replica_surface.h"
#include "curvature/spectrum.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "ptqwatch/options.h"
#include "session/curvature_batches.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The loss whose curvature is measured: a function of some parameters, on some batches.
struct CurvatureTarget {
  std::vector<int> scope;  ///< entries of the replica's table
  int64_t parameters = 0;  ///< elements in the scope
  std::vector<Batch> batches;
};

/// The session's curvature batches, and the parameters that `options` put in the scope. The session
/// must still have its live tensors, which know what is frozen, and for kQuantizedWeights a plan.
/// InvalidArgument for a glob that matches no floating-point parameter.
absl::StatusOr<CurvatureTarget> MakeCurvatureTarget(const ModelSession& session,
                                                    const CurvatureOptions& options);

/// What is known about a target before its curvature is measured.
struct CurvatureSetup {
  CurvatureTarget target;
  BatchTotals totals;
  HessianMode mode = HessianMode::kAuto;  ///< the one chosen
  std::optional<int64_t> graph_bytes;     ///< of all batches, estimated
  int64_t graph_fixed_bytes = 0;          ///< of each batch, what does not grow with its sequences

  /// The most bytes that the mode's graphs take at a time, estimated; 0 where that is not known.
  int64_t GraphBytesHeld() const;

  /// The mean of the squared weights of each parameter in the scope, in the loaded snapshot.
  std::vector<double> MeanSquares(const Replica& replica) const;

  /// The setup must outlive the surface.
  absl::StatusOr<std::unique_ptr<ReplicaSurface>> MakeSurface(Replica& replica) const {
    return ReplicaSurface::Create(&replica, target.scope, &target.batches, totals.weight);
  }
};

/// Evaluates the batches once, and finds out how products with the Hessian can be made
/// (ChooseHessianMode). FailedPrecondition saying why they cannot, or that `losses` draws random
/// numbers from a default generator once gradients are on; the generators are put back.
absl::StatusOr<CurvatureSetup> PrepareCurvature(Replica& replica, CurvatureTarget target,
                                                const CurvatureEngineOptions& engine,
                                                const ExecutionContext& context);

/// The same loss surface on other batches, of which there may be more: what `setup` found out on
/// its own is taken over. Evaluates the batches once, twice where they are cut.
///
/// The bytes of their graphs are predicted. With kAuto, and where `setup` found graphs to work,
/// they are retained if they fit into `engine.max_graph_bytes` and into half of what remains of the
/// context's ByteBudget; the other half is for vectors. Batches whose graph alone does not fit
/// there are cut (MicroBatches). Where that cannot be done, or one sequence is too much, finite
/// differences are taken, which need no graph of the gradient.
absl::StatusOr<CurvatureSetup> OnBatches(Replica& replica, const CurvatureSetup& setup,
                                         std::vector<Batch> batches,
                                         const CurvatureEngineOptions& engine,
                                         const ExecutionContext& context);

/// The options of the engine's parts.
EigenpairOptions EigenpairOptionsFrom(const CurvatureOptions& options,
                                      const CurvatureEngineOptions& engine,
                                      const VectorSpace& space);
SpectrumOptions SpectrumOptionsFrom(const CurvatureOptions& options,
                                    const CurvatureEngineOptions& engine, const VectorSpace& space);
HutchinsonOptions HutchinsonOptionsFrom(const CurvatureOptions& options,
                                        const CurvatureEngineOptions& engine);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_CURVATURE_SETUP_H_
