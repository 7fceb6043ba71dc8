#include "session/curvature_setup.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/glob.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/hessian_mode.h"
#include "session/gradient_check.h"
#include "session/trained_parameters.h"
#include "snapshot/generator_guard.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kDefaultVectorBytes = int64_t{1} << 30;
// A product with a recomputed graph holds the gradient's graph and its derivative's.
constexpr int64_t kGraphsAtATime = 2;

int64_t RoomForGraphs(const ExecutionContext& context) {
  if (context.bytes == nullptr) return std::numeric_limits<int64_t>::max();
  return (context.bytes->limit() - context.bytes->used()) / 2;
}

// Sets batches and totals to a few first sequences of `batches`: one, or as many as it takes for a
// token that is not masked out.
absl::Status TakeFew(Replica& replica, const std::vector<Batch>& batches,
                     const ExecutionContext& context, CurvatureSetup& setup) {
  const int64_t all = CountSequences(batches);
  for (int64_t sequences = 1;; sequences *= 2) {
    setup.target.batches = FirstSequences(replica, batches, sequences);
    absl::StatusOr<BatchTotals> totals = TotalsOf(replica, setup.target.batches, context);
    if (totals.ok()) setup.totals = *totals;
    const bool masked = absl::IsFailedPrecondition(totals.status());
    if (!masked || sequences >= all) return totals.status();
  }
}

bool IsFloatParameter(const TensorEntry& entry) {
  return entry.is_parameter && at::isFloatingType(entry.tensor.scalar_type());
}

absl::StatusOr<std::vector<int>> NamedParameters(const std::vector<TensorEntry>& table,
                                                 const std::vector<std::string>& globs) {
  std::vector<bool> chosen(table.size());
  for (const std::string& glob : globs) {
    bool matched = false;
    for (size_t i = 0; i < table.size(); ++i) {
      if (!IsFloatParameter(table[i]) || !GlobMatch(glob, table[i].name)) continue;
      chosen[i] = matched = true;
    }
    if (!matched) {
      return absl::InvalidArgumentError(
          StrCat("curvature.parameters: no floating-point parameter matches '", glob, "'"));
    }
  }
  std::vector<int> entries;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) entries.push_back(static_cast<int>(i));
  }
  return entries;
}

absl::StatusOr<std::vector<int>> ScopeEntries(const ModelSession& session,
                                              const CurvatureOptions& options) {
  std::vector<int> scope;
  if (options.scope == CurvatureScope::kQuantizedWeights) {
    for (const CoveredLayer& layer : session.plan().layers) {
      const int parameter = session.replica().ParameterOf(layer.entry);
      if (std::find(scope.begin(), scope.end(), parameter) == scope.end()) {
        scope.push_back(parameter);
      }
    }
    return scope;
  }
  if (options.scope == CurvatureScope::kAllParameters) return TrainedParameters(session);
  return NamedParameters(session.replica().table().entries, options.parameters);
}

}  // namespace

absl::StatusOr<CurvatureTarget> MakeCurvatureTarget(const ModelSession& session,
                                                    const CurvatureOptions& options) {
  CurvatureTarget target;
  PTQWATCH_ASSIGN_OR_RETURN(target.scope, ScopeEntries(session, options));
  for (int entry : target.scope) {
    target.parameters +=
        session.replica().table().entries[static_cast<size_t>(entry)].tensor.numel();
  }
  target.batches = session.curvature();
  return target;
}

absl::StatusOr<CurvatureSetup> PrepareCurvature(Replica& replica, CurvatureTarget target,
                                                const CurvatureEngineOptions& engine,
                                                const ExecutionContext& context) {
  CurvatureSetup setup;
  const GeneratorGuard generators;
  const std::vector<Batch> batches = std::exchange(target.batches, {});
  setup.target = std::move(target);
  PTQWATCH_RETURN_IF_ERROR(TakeFew(replica, batches, context, setup));
  PTQWATCH_ASSIGN_OR_RETURN(const auto surface, setup.MakeSurface(replica));
  const absl::Status reached = CheckGradients(replica, setup.target.scope, *surface);
  const absl::StatusOr<HessianChoice> choice =
      reached.ok() ? ChooseHessianMode(surface.get(), engine.mode, engine.max_graph_bytes, context)
                   : reached;
  // The guard keeps a backward pass's draws away from the training run. Snapshots have no guard.
  if (generators.drew() || generators.Seeded()) {
    return absl::FailedPreconditionError(
        "losses draws random numbers from a default generator, or seeds it, when gradients are on; "
        "that would change the training run");
  }
  PTQWATCH_RETURN_IF_ERROR(choice.status());
  setup.mode = choice->mode;
  setup.rough_differences = choice->rough_differences;
  setup.mode_detail = choice->detail;
  setup.graph_bytes = choice->graph_bytes;
  return setup;
}

absl::StatusOr<CurvatureSetup> OnBatches(Replica& replica, const CurvatureSetup& setup,
                                         std::vector<Batch> batches,
                                         const CurvatureEngineOptions& engine,
                                         const ExecutionContext& context) {
  CurvatureSetup other = setup;
  other.target.batches = std::move(batches);
  PTQWATCH_ASSIGN_OR_RETURN(other.totals, TotalsOf(replica, other.target.batches, context));
  if (!setup.graph_bytes) return other;
  const double tokens = static_cast<double>(std::max<int64_t>(1, setup.totals.tokens));
  other.graph_bytes =
      setup.graph_fixed_bytes * std::ssize(other.target.batches) +
      static_cast<int64_t>(static_cast<double>(*setup.graph_bytes - setup.graph_fixed_bytes) *
                           static_cast<double>(other.totals.tokens) / tokens);
  if (engine.mode != HessianMode::kAuto) return other;
  const int64_t room = RoomForGraphs(context);
  other.mode = HessianMode::kRetainedGraph;
  if (*other.graph_bytes > engine.max_graph_bytes || other.GraphBytesHeld() > room) {
    other.mode = HessianMode::kRecomputedGraph;
  }
  if (other.GraphBytesHeld() <= room) return other;
  const int64_t sequences = std::max<int64_t>(1, CountSequences(other.target.batches));
  const auto fit = static_cast<int64_t>(static_cast<double>(room) * static_cast<double>(sequences) /
                                        static_cast<double>(kGraphsAtATime * *other.graph_bytes));
  absl::StatusOr<std::vector<Batch>> pieces =
      MicroBatches(replica, other.target.batches, std::max<int64_t>(1, fit));
  if (pieces.ok()) other.target.batches = *std::move(pieces);
  if (!pieces.ok() || fit < 1) {
    other.mode = HessianMode::kFiniteDifference;
    other.mode_detail = StrFormat(
        "a sequence's gradient graph and its derivative take %.3g MB, and %.3g MB are left",
        1e-6 * static_cast<double>(kGraphsAtATime * *other.graph_bytes) /
            static_cast<double>(sequences),
        1e-6 * static_cast<double>(room));
    if (!pieces.ok() && fit >= 1) {
      other.mode_detail = StrCat("gradient graphs fit for pieces of the batches only, but ",
                                 pieces.status().message());
    }
  }
  return other;
}

int64_t CurvatureSetup::GraphBytesHeld() const {
  if (!graph_bytes || mode == HessianMode::kFiniteDifference) return 0;
  int64_t largest = 0;
  for (const Batch& batch : target.batches) largest = std::max(largest, CountSequences({batch}));
  const int64_t all = std::max<int64_t>(1, CountSequences(target.batches));
  const int64_t growing =
      std::max<int64_t>(0, *graph_bytes - graph_fixed_bytes * std::ssize(target.batches));
  const auto of_largest = graph_fixed_bytes + static_cast<int64_t>(static_cast<double>(growing) *
                                                                   static_cast<double>(largest) /
                                                                   static_cast<double>(all));
  // While a product runs, the derivative of one batch's graph exists beside the graph.
  return mode == HessianMode::kRetainedGraph ? *graph_bytes + of_largest
                                             : kGraphsAtATime * of_largest;
}

std::vector<double> CurvatureSetup::MeanSquares(const Replica& replica) const {
  std::vector<double> means;
  const auto mean_square = [](const at::Tensor& weight) {
    return weight.numel() == 0 ? 0 : weight.to(at::kDouble).square().mean().item<double>();
  };
  for (int entry : target.scope) {
    const std::vector<Replica::Piece> pieces = replica.PiecesOf(entry);
    if (pieces.empty()) means.push_back(mean_square(replica.loaded(entry)));
    int64_t first = 0;
    for (const Replica::Piece& piece : pieces) {
      means.push_back(
          mean_square(replica.loaded(entry).reshape({-1}).narrow(0, first, piece.second)));
      first += piece.second;
    }
  }
  return means;
}

EigenpairOptions EigenpairOptionsFrom(const CurvatureOptions& options,
                                      const CurvatureEngineOptions& engine,
                                      const VectorSpace& space) {
  EigenpairOptions search;
  search.residual_ratio = options.eigenvalue_residual_ratio;
  search.max_products = engine.max_eigenvalue_products;
  const int64_t min_vectors =
      MinSearchVectors(space) + options.top_eigenvalues - 1 + (options.bottom_eigenvalue ? 1 : 0);
  search.max_bytes = engine.max_vector_bytes > 0
                         ? engine.max_vector_bytes
                         : std::max(kDefaultVectorBytes, min_vectors * space.bytes());
  return search;
}

SpectrumOptions SpectrumOptionsFrom(const CurvatureOptions& options,
                                    const CurvatureEngineOptions& engine,
                                    const VectorSpace& space) {
  return {.top = options.top_eigenvalues,
          .bottom = options.bottom_eigenvalue,
          .search = EigenpairOptionsFrom(options, engine, space)};
}

HutchinsonOptions HutchinsonOptionsFrom(const CurvatureOptions& options,
                                        const CurvatureEngineOptions& engine) {
  HutchinsonOptions hutchinson;
  hutchinson.relative_stderr = options.trace_relative_stderr;
  hutchinson.max_probes = engine.max_trace_probes;
  return hutchinson;
}

}  // namespace ptqwatch::internal
