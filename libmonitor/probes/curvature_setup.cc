#include "probes/curvature_setup.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/glob.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "curvature/hessian_mode.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kVectorBytes = int64_t{1} << 30;

bool IsParameter(const TensorEntry& entry) {
  return entry.is_parameter && at::isFloatingType(entry.tensor.scalar_type());
}

}  // namespace

absl::StatusOr<std::vector<int>> ScopeEntries(const Replica& replica, const TensorTable& live,
                                              const CapturePlan& plan,
                                              const CurvatureOptions& options) {
  std::vector<int> scope;
  if (options.scope == CurvatureScope::kQuantizedWeights) {
    for (const CoveredLayer& layer : plan.layers) scope.push_back(layer.entry);
    return scope;
  }
  const std::vector<TensorEntry>& table = replica.table().entries;
  std::vector<bool> chosen(table.size());
  if (options.scope == CurvatureScope::kAllParameters) {
    // Tensors that wrap a trainer's own memory never require gradients, and are trained all the
    // same.
    const bool knows_frozen =
        std::any_of(live.entries.begin(), live.entries.end(),
                    [](const TensorEntry& entry) { return entry.tensor.requires_grad(); });
    for (size_t i = 0; i < table.size(); ++i) {
      chosen[i] =
          IsParameter(table[i]) && (!knows_frozen || live.entries[i].tensor.requires_grad());
    }
  } else {
    for (const std::string& glob : options.parameters) {
      bool matched = false;
      for (size_t i = 0; i < table.size(); ++i) {
        if (!IsParameter(table[i]) || !GlobMatch(glob, table[i].name)) continue;
        chosen[i] = matched = true;
      }
      if (!matched) {
        return absl::InvalidArgumentError(
            StrCat("curvature.parameters: no floating-point parameter matches '", glob, "'"));
      }
    }
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) scope.push_back(static_cast<int>(i));
  }
  return scope;
}

EigenpairOptions EigenpairOptionsFrom(const CurvatureOptions& options, const VectorSpace& space) {
  EigenpairOptions search;
  search.residual_ratio = options.eigenvalue_residual_ratio;
  search.max_products = options.max_eigenvalue_products;
  const int64_t least =
      kLeastLanczosVectors + options.top_eigenvalues - 1 + (options.bottom_eigenvalue ? 1 : 0);
  search.max_bytes = options.max_vector_bytes > 0 ? options.max_vector_bytes
                                                  : std::max(kVectorBytes, least * space.bytes());
  return search;
}

SpectrumOptions SpectrumOptionsFrom(const CurvatureOptions& options, const VectorSpace& space) {
  return {.top = options.top_eigenvalues,
          .bottom = options.bottom_eigenvalue,
          .search = EigenpairOptionsFrom(options, space)};
}

HutchinsonOptions HutchinsonOptionsFrom(const CurvatureOptions& options) {
  HutchinsonOptions hutchinson;
  hutchinson.relative_stderr = options.trace_relative_stderr;
  hutchinson.max_probes = options.max_trace_probes;
  return hutchinson;
}

std::vector<double> CurvatureSetup::MeanSquares(const Replica& replica) const {
  std::vector<double> means;
  for (int entry : scope) {
    const at::Tensor weight = replica.loaded(entry).to(at::kDouble);
    means.push_back(weight.numel() == 0 ? 0 : weight.square().mean().item<double>());
  }
  return means;
}

absl::Status CurvatureSetup::Prepare(Replica& replica, const CurvatureOptions& options,
                                     const ExecutionContext& context) {
  total_weight = 0;
  tokens = 0;
  for (const Batch& batch : batches) {
    absl::StatusOr<LossValues> losses = replica.Losses(batch);
    if (!losses.ok()) return losses.status();
    absl::StatusOr<UnitLosses> units = SumByUnit(*losses, batch);
    if (!units.ok()) return units.status();
    total_weight += TotalWeight(*losses);
    tokens += units->tokens;
  }
  if (!(total_weight > 0)) {
    return absl::FailedPreconditionError("every token of the curvature batch is masked out");
  }
  auto surface = MakeSurface(replica);
  if (!surface.ok()) return surface.status();
  absl::StatusOr<HessianChoice> choice =
      ChooseHessianMode(surface->get(), options.mode, options.max_graph_bytes, context);
  if (!choice.ok()) return choice.status();
  mode = choice->mode;
  graph_bytes = choice->graph_bytes;
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
