#include "probes/curvature_probe.h"

#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "probes/edge_of_stability_stage.h"
#include "probes/error_measurement.h"
#include "snapshot/generator_guard.h"

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
  PTQWATCH_RETURN_IF_ERROR(hessian.Apply(z, hz, context));
  absl::StatusOr<double> check = hessian.StepCheck(z, hz, context);
  if (!check.ok() || *check <= kMaxStepCheck) return check;
  return absl::FailedPreconditionError(
      StrFormat("a product with the Hessian changes by %.2g of itself when the step of the "
                "finite difference is halved: the loss is too rough for it",
                *check));
}

}  // namespace

/// One attempt at measuring, in one mode. What it cost is known even where it fails.
class CurvatureProbe::Attempt {
 public:
  Attempt(CurvatureProbe& probe, const ProbeInput& input, const ExecutionContext& context)
      : probe_(probe), setup_(probe.setup_), input_(input), context_(context) {}

  absl::Status Run() {
    at::NoGradGuard no_grad;
    static const QuantizedWeights none;
    const auto* quantization = input_.Earlier<QuantizationResult>();
    const QuantizedWeights& quantized = quantization == nullptr ? none : quantization->weights;
    Stopwatch watch(context_.clock);
    PTQWATCH_ASSIGN_OR_RETURN(const auto surface, setup_.MakeSurface(probe_.session_.replica()));
    ErrorMeasurement errors(*surface, quantized);
    {
      PTQWATCH_ASSIGN_OR_RETURN(const auto hessian,
                                HessianOperator::Create(surface.get(), setup_.mode, context_));
      cost_seconds["curvature_gradient"] = watch.Lap();
      PTQWATCH_RETURN_IF_ERROR(MeasureHessian(*hessian));
      watch.Lap();
      PTQWATCH_RETURN_IF_ERROR(
          errors.Predict(*hessian, WarmStartFrom(vectors, "top.0").vector, context_));
      report.hessian_products = hessian->products();
      if (setup_.mode == HessianMode::kRetainedGraph) report.graph_bytes = setup_.graph_bytes;
    }
    // Its graph is gone: now the weights may change.
    PTQWATCH_RETURN_IF_ERROR(errors.Measure(context_));
    error_curvature = errors.Take();
    cost_seconds["curvature_prediction"] = watch.Lap();
    return absl::OkStatus();
  }

  CurvatureReport report;
  std::vector<std::optional<ErrorCurvature>> error_curvature;
  VectorMap vectors;
  std::map<std::string, double> cost_seconds;

 private:
  absl::Status MeasureHessian(HessianOperator& hessian) {
    const VectorSpace& space = hessian.space();
    const CurvatureOptions& options = probe_.options_;
    const CurvatureEngineOptions& engine = probe_.engine_;
    Stopwatch watch(context_.clock);
    report.loss_nats = hessian.loss();
    report.batch_tokens = setup_.tokens;
    report.gradient_norm = space.Norm(hessian.gradient());
    if (setup_.mode == HessianMode::kFiniteDifference) {
      PTQWATCH_ASSIGN_OR_RETURN(report.step_check_ratio, CheckStep(hessian, context_));
    }

    PTQWATCH_ASSIGN_OR_RETURN(
        SpectrumSearch search,
        FindSpectrum(hessian, WithGradient(space, input_.state.vectors, hessian.gradient()),
                     SpectrumOptionsFrom(options, engine, space), context_));
    vectors = std::move(search.next);
    Fill(search.spectrum, report);
    cost_seconds["curvature_eigenvalue"] = watch.Lap();

    const std::vector<double> mean_squares = setup_.MeanSquares(probe_.session_.replica());
    PTQWATCH_ASSIGN_OR_RETURN(const HessianTrace trace,
                              EstimateTrace(hessian, mean_squares, search.krylov,
                                            HutchinsonOptionsFrom(options, engine), context_));
    Fill(trace, space, mean_squares, report);
    cost_seconds["curvature_trace"] = watch.Lap();
    search.krylov = {};  // room for the next search

    PTQWATCH_ASSIGN_OR_RETURN(
        EdgeOfStabilityResult edge,
        MeasureEdgeOfStabilityStage(hessian, input_.optimizer, search.spectrum.top[0],
                                    input_.state.vectors,
                                    EigenpairOptionsFrom(options, engine, space), context_));
    if (edge.optimizer) cost_seconds["curvature_edge_of_stability"] = watch.Lap();
    report.optimizer = edge.optimizer;
    report.edge_of_stability_ratio = edge.ratio;
    report.edge_of_stability_residual_ratio = edge.residual_ratio;
    report.edge_of_stability_detail = std::move(edge.detail);
    vectors.merge(edge.vectors);
    return absl::OkStatus();
  }

  CurvatureProbe& probe_;
  const CurvatureSetup& setup_;
  const ProbeInput& input_;
  const ExecutionContext& context_;
};

absl::StatusOr<std::unique_ptr<CurvatureProbe>> CurvatureProbe::Create(
    ModelSession& session, const MonitorOptions& options, const CurvatureEngineOptions& engine) {
  PTQWATCH_ASSIGN_OR_RETURN(CurvatureTarget target,
                            MakeCurvatureTarget(session, options.curvature));
  std::unique_ptr<CurvatureProbe> probe(
      new CurvatureProbe(session, std::move(target), options.curvature, engine));
  ExecutionContext context;
  context.seeds = SeedSource(options.seed);
  GeneratorGuard generators;
  const bool asked = engine.mode != HessianMode::kAuto;
  absl::StatusOr<CurvatureSetup> setup =
      Guard([&] { return PrepareCurvature(session.replica(), probe->target_, engine, context); });
  if (setup.ok()) {
    probe->setup_ = *std::move(setup);
  } else if (asked) {
    return absl::FailedPreconditionError(
        StrCat("curvature.mode = ", ToString(engine.mode), ": ", setup.status()));
  } else {
    probe->Disable(StrCat(setup.status()));
  }
  // The guard puts the generators back here; at a snapshot nothing would.
  if (generators.Moved()) {
    const std::string reason =
        "losses draws random numbers from a default generator when gradients are on; that would "
        "change the training run";
    if (asked) return absl::FailedPreconditionError(StrCat("curvature: ", reason));
    probe->Disable(reason);
  }
  return probe;
}

ProbeResult CurvatureProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  CurvatureResult result;
  result.report.scope = options_.scope;
  result.report.parameters = target_.parameters;
  result.report.status = status;
  result.report.status_detail = detail;
  ProbeResult measured;
  measured.outcome = {std::string(kName), OutcomeOf(status), StrCat("curvature: ", detail)};
  measured.value = std::move(result);
  return measured;
}

ProbeResult CurvatureProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  // Short of memory for vectors, no other way of making products would help.
  const VectorSpace space = SpaceOf(session_.replica(), target_.scope);
  const bool vectors_fit =
      CheckSpectrumMemory(space, SpectrumOptionsFrom(options_, engine_, space), context).ok();
  std::map<std::string, double> cost_seconds;
  while (true) {
    Attempt attempt(*this, input, context);
    attempt.report.scope = options_.scope;
    attempt.report.parameters = target_.parameters;
    attempt.report.mode = setup_.mode;
    const absl::Status status = Guard([&] { return attempt.Run(); });
    for (const auto& [part, seconds] : attempt.cost_seconds) cost_seconds[part] = seconds;
    if (status.ok()) {
      attempt.report.status = ProbeStatus::kOk;
      return {
          .outcome = {std::string(kName)},
          .cost_seconds = std::move(cost_seconds),
          .vectors = std::move(attempt.vectors),
          .value = CurvatureResult{std::move(attempt.report), std::move(attempt.error_curvature)}};
    }
    const std::optional<HessianMode> smaller = SmallerMode(setup_.mode);
    if (absl::IsResourceExhausted(status) && vectors_fit && engine_.mode == HessianMode::kAuto &&
        smaller) {
      setup_.mode = *smaller;
      continue;
    }
    ProbeResult failed = NotMeasured(ProbeStatusOf(status), StrCat(status));
    std::get<CurvatureResult>(failed.value).report.mode = setup_.mode;
    failed.cost_seconds = std::move(cost_seconds);
    failed.vectors = input.state.vectors;
    return failed;
  }
}

ProbeDescription CurvatureProbe::Describe() const {
  if (!disabled().empty()) return {.text = StrCat("curvature: off, ", disabled(), "\n")};
  std::string graphs;
  if (setup_.graph_bytes) {
    graphs =
        StrFormat(", gradient graphs of %.1f MB", 1e-6 * static_cast<double>(*setup_.graph_bytes));
  }
  return {.text = StrFormat("curvature: %s, %d parameters (%s), %d tokens in %d batches%s\n",
                            ToString(setup_.mode), target_.parameters, ToString(options_.scope),
                            setup_.tokens, target_.batches.size(), graphs),
          .bytes = setup_.mode == HessianMode::kRetainedGraph ? setup_.graph_bytes.value_or(0) : 0};
}

}  // namespace ptqwatch::internal
