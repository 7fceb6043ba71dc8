#include "probes/curvature_probe.h"

#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "probes/edge_of_stability_probe.h"
#include "probes/error_curvature.h"
#include "probes/probe_status.h"

namespace ptqwatch::internal {
namespace {

void Fill(const HessianSpectrum& spectrum, CurvatureReport& curvature) {
  curvature.top_eigenvalue = spectrum.top[0].value;
  curvature.top_eigenvalue_residual_ratio = spectrum.top[0].residual_ratio;
  curvature.eigenvalue_method = spectrum.top[0].method;
  for (const HessianEigenpair& pair : spectrum.top) {
    curvature.top_eigenvalues.push_back(
        {pair.value, pair.residual_ratio, pair.converged, pair.products, pair.start});
  }
  if (!spectrum.bottom.empty()) {
    curvature.bottom_eigenvalue = spectrum.bottom[0].value;
    curvature.bottom_eigenvalue_residual_ratio = spectrum.bottom[0].residual_ratio;
  }
}

void Fill(const HessianTrace& trace, const VectorSpace& space,
          const std::vector<double>& mean_squares, CurvatureReport& curvature) {
  curvature.trace = trace.trace;
  curvature.trace_stderr = trace.trace_stderr;
  curvature.trace_interval = trace.trace_interval;
  curvature.trace_probes = trace.probes;
  curvature.weighted_trace = trace.weighted_trace;
  curvature.weighted_trace_stderr = trace.weighted_trace_stderr;
  for (size_t i = 0; i < space.parts().size(); ++i) {
    LayerCurvature& layer = curvature.layers.emplace_back();
    layer.name = space.parts()[i].name;
    layer.parameters = space.parts()[i].elements;
    layer.trace = trace.parameters[i].trace;
    layer.trace_stderr = trace.parameters[i].trace_stderr;
    layer.weight_mean_square = mean_squares[i];
  }
}

// How much a product by finite differences depends on its step; 0 for exact ones.
absl::StatusOr<double> CheckStep(HessianOperator& hessian, const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  Vector z = space.Zero();
  Vector hz = space.Zero();
  space.FillRademacher(context.seeds.Seed("step", 0), z);
  if (absl::Status status = hessian.Apply(z, hz, context); !status.ok()) return status;
  absl::StatusOr<double> check = hessian.StepCheck(z, hz, context);
  if (!check.ok() || *check <= kMaxStepCheck) return check;
  return absl::FailedPreconditionError(
      absl::StrFormat("a product with the Hessian changes by %.2g of itself when the step of the "
                      "finite difference is halved: the loss is too rough for it",
                      *check));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CurvatureProbe>> CurvatureProbe::Create(
    ModelSession& session, const MonitorOptions& options, const CurvatureEngineOptions& engine) {
  PTQWATCH_ASSIGN_OR_RETURN(CurvatureTarget target,
                            MakeCurvatureTarget(session, options.curvature));
  std::unique_ptr<CurvatureProbe> probe(
      new CurvatureProbe(std::move(target), options.curvature, engine));
  ExecutionContext context;
  context.seeds = SeedSource(options.seed);
  absl::StatusOr<CurvatureSetup> setup =
      Guard([&] { return PrepareCurvature(session.replica(), probe->target_, engine, context); });
  if (setup.ok()) {
    probe->setup_ = *std::move(setup);
    return probe;
  }
  if (engine.mode != HessianMode::kAuto) {
    return absl::FailedPreconditionError(
        StrCat("curvature.mode = ", ToString(engine.mode), ": ", setup.status()));
  }
  probe->unavailable_ = Message(setup.status());
  return probe;
}

absl::Status CurvatureProbe::Run(Replica& replica,
                                 const std::vector<std::vector<Replica::Override>>& quantized,
                                 const OptimizerState& optimizer, const ProbeState& state,
                                 Report& report, ProbeState& next,
                                 const ExecutionContext& context) {
  CurvatureReport nothing_measured;
  nothing_measured.scope = options_.scope;
  nothing_measured.parameters = target_.parameters;
  if (!unavailable_.empty()) {
    nothing_measured.status = ProbeStatus::kDisabled;
    nothing_measured.status_detail = unavailable_;
    report.curvature = std::move(nothing_measured);
    return absl::OkStatus();
  }
  CurvatureReport curvature;
  // Short of memory for vectors, no other way of making products would help.
  const VectorSpace space = SpaceOf(replica, target_.scope);
  const bool vectors_fit =
      CheckSpectrumMemory(space, SpectrumOptionsFrom(options_, engine_, space), context).ok();
  absl::Status status;
  while (true) {
    curvature = nothing_measured;
    curvature.mode = setup_.mode;
    next.vectors.clear();
    status = Guard([&] {
      return Measure(replica, quantized, optimizer, state, report, curvature, next, context);
    });
    if (status.ok()) break;
    curvature = nothing_measured;
    curvature.mode = setup_.mode;
    curvature.status_detail = std::string(status.message());
    next.vectors = state.vectors;
    const std::optional<HessianMode> smaller = SmallerMode(setup_.mode);
    if (!absl::IsResourceExhausted(status) || !vectors_fit || engine_.mode != HessianMode::kAuto ||
        !smaller) {
      break;
    }
    setup_.mode = *smaller;
  }
  curvature.status = ProbeStatusOf(status);
  report.curvature = std::move(curvature);
  return context.cancel.cancelled() ? absl::CancelledError("the monitor is being stopped")
                                    : absl::OkStatus();
}

absl::Status CurvatureProbe::Measure(Replica& replica,
                                     const std::vector<std::vector<Replica::Override>>& quantized,
                                     const OptimizerState& optimizer, const ProbeState& state,
                                     Report& report, CurvatureReport& curvature, ProbeState& next,
                                     const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  auto surface = setup_.MakeSurface(replica);
  if (!surface.ok()) return surface.status();
  ErrorCurvature errors(**surface, quantized);
  {
    absl::StatusOr<std::unique_ptr<HessianOperator>> hessian =
        HessianOperator::Create(surface->get(), setup_.mode, context);
    if (!hessian.ok()) return hessian.status();
    report.cost_seconds["curvature_gradient"] = watch.Lap();
    absl::Status status =
        MeasureSpectrum(replica, **hessian, optimizer, state, report, curvature, next, context);
    if (!status.ok()) return status;
    watch.Lap();
    status = errors.Predict(**hessian, WarmStartFrom(next.vectors, "top.0").vector, context);
    if (!status.ok()) return status;
    curvature.hessian_products = (*hessian)->products();
    if (setup_.mode == HessianMode::kRetainedGraph) curvature.graph_bytes = setup_.graph_bytes;
  }
  // Its graph is gone: now the weights may change.
  if (absl::Status status = errors.Measure(context); !status.ok()) return status;
  errors.Fill(report.quantization);
  report.cost_seconds["curvature_prediction"] = watch.Lap();
  return absl::OkStatus();
}

absl::Status CurvatureProbe::MeasureSpectrum(Replica& replica, HessianOperator& hessian,
                                             const OptimizerState& optimizer,
                                             const ProbeState& state, Report& report,
                                             CurvatureReport& curvature, ProbeState& next,
                                             const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  Stopwatch watch(context.clock);
  curvature.loss_nats = hessian.loss();
  curvature.batch_tokens = setup_.tokens;
  curvature.gradient_norm = space.Norm(hessian.gradient());
  if (setup_.mode == HessianMode::kFiniteDifference) {
    absl::StatusOr<double> check = CheckStep(hessian, context);
    if (!check.ok()) return check.status();
    curvature.step_check_ratio = *check;
  }

  absl::StatusOr<SpectrumSearch> search =
      FindSpectrum(hessian, WithGradient(space, state.vectors, hessian.gradient()),
                   SpectrumOptionsFrom(options_, engine_, space), context);
  if (!search.ok()) return search.status();
  next.vectors = std::move(search->next);
  Fill(search->spectrum, curvature);
  report.cost_seconds["curvature_eigenvalue"] = watch.Lap();

  const std::vector<double> mean_squares = setup_.MeanSquares(replica);
  absl::StatusOr<HessianTrace> trace = EstimateTrace(
      hessian, mean_squares, search->krylov, HutchinsonOptionsFrom(options_, engine_), context);
  if (!trace.ok()) return trace.status();
  Fill(*trace, space, mean_squares, curvature);
  report.cost_seconds["curvature_trace"] = watch.Lap();
  search->krylov = {};  // room for the next search
  return ProbeEdgeOfStability(hessian, optimizer, search->spectrum.top[0],
                              EigenpairOptionsFrom(options_, engine_, space), state, report,
                              curvature, next, context);
}

std::string CurvatureProbe::Describe() const {
  if (!unavailable_.empty()) return StrCat("curvature: off, ", unavailable_, "\n");
  std::string graphs;
  if (setup_.graph_bytes) {
    graphs = absl::StrFormat(", gradient graphs of %.1f MB",
                             1e-6 * static_cast<double>(*setup_.graph_bytes));
  }
  return absl::StrFormat("curvature: %s, %d parameters (%s), %d tokens in %d batches%s\n",
                         std::string(ToString(setup_.mode)), target_.parameters,
                         std::string(ToString(options_.scope)), setup_.tokens,
                         target_.batches.size(), graphs);
}

}  // namespace ptqwatch::internal
