#ifndef PTQWATCH_SESSION_CURVATURE_SETUP_H_
#define PTQWATCH_SESSION_CURVATURE_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

/// The loss whose curvature is measured, as a function of some parameters on some batches.
struct CurvatureTarget {
  std::vector<int> scope;  ///< entries of the replica's table
  int64_t parameters = 0;  ///< elements in the scope
  std::vector<Batch> batches;
};

/// The session's curvature batches and the parameters that `options` select. The session must still
/// have its live tensors, which tell frozen parameters, and a plan for kQuantizedWeights. Returns
/// InvalidArgument for a glob that matches no floating-point parameter.
absl::StatusOr<CurvatureTarget> MakeCurvatureTarget(const ModelSession& session,
                                                    const CurvatureOptions& options);

/// A target with the findings of PrepareCurvature.
struct CurvatureSetup {
  CurvatureTarget target;
  BatchTotals totals;
  HessianMode mode = HessianMode::kAuto;  ///< the chosen mode
  bool rough_differences = false;         ///< as HessianChoice::rough_differences
  std::string mode_detail = {};           ///< as CurvatureReport::mode_detail
  std::optional<int64_t> graph_bytes;     ///< estimate for all batches
  int64_t graph_fixed_bytes = 0;          ///< of each batch, independent of its sequences

  /// Estimate of the most bytes that the mode's graphs take at a time; 0 if unknown.
  int64_t GraphBytesHeld() const;

  /// The mean squared weight of each parameter in the scope, in the loaded snapshot.
  std::vector<double> MeanSquares(const Replica& replica) const;

  /// The setup must outlive the surface.
  absl::StatusOr<std::unique_ptr<ReplicaSurface>> MakeSurface(Replica& replica) const {
    return ReplicaSurface::Create(&replica, target.scope, &target.batches, totals.weight);
  }
};

/// Chooses how to compute products with the Hessian (ChooseHessianMode) on the first of the
/// target's sequences, or more if those are masked out; a batch that cannot be cut is taken whole.
/// OnBatches goes on to the batches. Returns FailedPrecondition if no mode works, with the reason,
/// or if `losses` draws random numbers from a default generator with gradients on; the generators
/// are then restored.
absl::StatusOr<CurvatureSetup> PrepareCurvature(Replica& replica, CurvatureTarget target,
                                                const CurvatureEngineOptions& engine,
                                                const ExecutionContext& context);

/// The same loss surface on other batches, usually more. Reuses the findings of
/// `setup`. Evaluates the batches once, or twice if they are cut.
///
/// Predicts the bytes of the batches' graphs. With kAuto, and if `setup` found graphs to work,
/// graphs are retained if they fit into `engine.max_graph_bytes` and into half of the context's
/// remaining ByteBudget; the other half is for vectors. Batches whose graph alone does not fit are
/// cut (MicroBatches). If they cannot be cut, or a single sequence does not fit, the mode is finite
/// differences, which need no graph of the gradient.
absl::StatusOr<CurvatureSetup> OnBatches(Replica& replica, const CurvatureSetup& setup,
                                         std::vector<Batch> batches,
                                         const CurvatureEngineOptions& engine,
                                         const ExecutionContext& context);

/// Options for the engine's parts.
EigenpairOptions EigenpairOptionsFrom(const CurvatureOptions& options,
                                      const CurvatureEngineOptions& engine,
                                      const VectorSpace& space);
SpectrumOptions SpectrumOptionsFrom(const CurvatureOptions& options,
                                    const CurvatureEngineOptions& engine, const VectorSpace& space);
HutchinsonOptions HutchinsonOptionsFrom(const CurvatureOptions& options,
                                        const CurvatureEngineOptions& engine);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_CURVATURE_SETUP_H_
