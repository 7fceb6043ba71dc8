#include "probes/curvature_probe.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "probes/edge_of_stability_stage.h"
#include "probes/error_measurement.h"
#include "report/layer_groups.h"
#include "report/watched_quantizer.h"
#include "snapshot/memory_meter.h"

namespace ptqwatch::internal {
namespace {

// In addition to the vectors of searches and trace: the gradient, start vectors that it was added
// to, a product, the two gradients of a difference, and an error.
constexpr int64_t kHeldVectors = 6;
constexpr int64_t kErrorVectors = 1;  // of these
// Vectors of a search that ends at the usual precision.
constexpr int64_t kSearchVectors = 10;
// Start vectors of the searches in two consecutive snapshots.
constexpr int64_t kKeptVectors = 6;
constexpr int64_t kEdgeVectors = 2;  // of these
constexpr int64_t kTrialVectors = 8;
// The optimizer's moments, in the slot and loaded; also left out if memory is short.
constexpr int64_t kOptimizerVectors = 2;
// Estimated size of the graphs of a few sequences, in forward passes, if memory did not allow a
// trial.
constexpr int64_t kGraphPasses = 8;
// Create times a gradient only if it expects to need at most these seconds.
constexpr double kLongestGradient = 2;
// Gradients in the time of each part: about 35 products of 2.4 to 3.4 gradients each in all.
constexpr double kSearchGradients = 30;
constexpr double kTraceGradients = 30;
constexpr double kEdgeGradients = 20;
constexpr double kErrorsGradients = 20;  // of all quantizers

void Fill(const HessianSpectrum& spectrum, CurvatureReport& curvature) {
  curvature.top_eigenvalue = spectrum.top[0].value;
  if (std::isfinite(spectrum.top[0].bound)) {
    curvature.top_eigenvalue_upper = spectrum.top[0].bound;
  }
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
  curvature.trace_batch_stderr = trace.trace_batch_stderr;
  curvature.weighted_trace = trace.weighted_trace;
  curvature.weighted_trace_stderr = trace.weighted_trace_stderr;
  const std::vector<VectorSpace::Part>& pieces = space.pieces();
  const auto add_row = [&](const BlockTrace& block, absl::Span<const size_t> members) {
    LayerCurvature& row = curvature.layers.emplace_back();
    row.name = block.name;
    row.trace = block.trace;
    row.trace_stderr = block.trace_stderr;
    row.weight_mean_square = mean_squares[members.front()];
    for (const size_t member : members) {
      row.parameters += pieces[member].elements;
      // The running mean.
      *row.weight_mean_square += (mean_squares[member] - *row.weight_mean_square) *
                                 static_cast<double>(pieces[member].elements) /
                                 static_cast<double>(row.parameters);
    }
    if (members.size() > 1) row.stacked = std::ssize(members);
  };
  const auto name_of = [&](size_t i) { return std::string_view(pieces[i].name); };
  const auto trace_of = [&](size_t i) { return trace.parameters[i].trace; };
  auto stack = trace.stacks.begin();
  for (const GroupedLayers& group : GroupLayers(pieces.size(), name_of)) {
    if (group.stacked()) add_row(*stack++, group.members);
    for (const size_t member : group.stacked() ? LargestMembers(group, trace_of) : group.members) {
      add_row(trace.parameters[member], {&member, 1});
    }
  }
}

// Frees memory that only the loss along the quantizers' errors needs. False if there was none.
bool DropQuantizedWeights(const ProbeInput& input) {
  auto* quantization = input.Earlier<QuantizationResult>();
  if (quantization == nullptr || quantization->held == nullptr) return false;
  for (std::vector<Replica::Override>& weights : quantization->weights) weights.clear();
  quantization->held.reset();
  for (QuantizationReport& report : quantization->quantizers) {
    if (report.status == ProbeStatus::kOk) {
      report.status_detail =
          "no curvature along its error: its weights do not fit beside the "
          "search for eigenvalues within max_bytes";
    }
  }
  return true;
}

}  // namespace

/// One attempt at measuring, in one mode. Its costs are known even if it fails.
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
    Reservation reservation(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(
        reservation.Take(probe_.HeldVectors() * surface->space().bytes(), "gradient and products"));
    // Subtracts the forward pass within a graph, because the session always reserves memory for it.
    const int64_t graphs = setup_.GraphBytesHeld() - probe_.session_.bytes().forward;
    PTQWATCH_RETURN_IF_ERROR(
        reservation.Take(std::max<int64_t>(0, graphs), "the gradient's graphs"));
    const std::optional<size_t> watched =
        quantization == nullptr ? std::nullopt : WatchedQuantizer(quantization->quantizers);
    ErrorMeasurement errors(*surface, quantized, watched);
    {
      PTQWATCH_ASSIGN_OR_RETURN(
          const auto hessian,
          HessianOperator::Create(surface.get(), setup_.mode, context_, setup_.rough_differences));
      cost_seconds["curvature_gradient"] = watch.Lap();
      PTQWATCH_RETURN_IF_ERROR(MeasureHessian(*hessian));
      watch.Lap();
      PTQWATCH_RETURN_IF_ERROR(
          errors.Predict(*hessian, WarmStartFrom(vectors, "top.0").vector, context_));
      report.hessian_products += hessian->products();
      if (setup_.mode == HessianMode::kRetainedGraph) report.graph_bytes = setup_.graph_bytes;
    }
    // The operator and its graph are gone, so the weights may change.
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
    report.batch_tokens = setup_.totals.tokens;
    report.gradient_norm = space.Norm(hessian.gradient());
    if (setup_.mode == HessianMode::kFiniteDifference) {
      PTQWATCH_ASSIGN_OR_RETURN(report.step_check_ratio,
                                CheckDifference(hessian, setup_.mode_detail, context_));
    }

    PTQWATCH_ASSIGN_OR_RETURN(
        SpectrumSearch search,
        FindSpectrum(hessian, WithGradient(input_.state.vectors, hessian.gradient()),
                     SpectrumOptionsFrom(options, engine, space), context_));
    vectors = std::move(search.next);
    Fill(search.spectrum, report);
    const bool has_edge = probe_.share_.Owns(probe_.share_.edge);
    if (!has_edge) report.hessian_products = -hessian.products();  // the edge's rank counts them
    cost_seconds["curvature_eigenvalue"] = watch.Lap();
    Reservation krylov(context_.bytes);
    PTQWATCH_RETURN_IF_ERROR(
        krylov.Take(std::ssize(search.krylov.basis) * space.bytes(), "the vectors of the search"));
    if (probe_.share_.Owns(probe_.share_.trace)) {
      PTQWATCH_RETURN_IF_ERROR(MeasureTrace(hessian, search.krylov));
    }
    return has_edge ? MeasureEdge(hessian, std::move(search)) : absl::OkStatus();
  }

  absl::Status MeasureTrace(HessianOperator& hessian, const KrylovSpace& known) {
    Stopwatch watch(context_.clock);
    const std::vector<double> mean_squares = setup_.MeanSquares(probe_.session_.replica());
    PTQWATCH_ASSIGN_OR_RETURN(
        const HessianTrace trace,
        EstimateTrace(hessian, mean_squares, known,
                      HutchinsonOptionsFrom(probe_.options_, probe_.engine_), context_));
    Fill(trace, hessian.space(), mean_squares, report);
    cost_seconds["curvature_trace"] = watch.Lap();
    return absl::OkStatus();
  }

  absl::Status MeasureEdge(HessianOperator& hessian, SpectrumSearch search) {
    Stopwatch watch(context_.clock);
    PTQWATCH_ASSIGN_OR_RETURN(
        EdgeOfStabilityResult edge,
        MeasureEdgeOfStabilityStage(
            hessian, input_.optimizer, search.spectrum.top[0], std::move(search.krylov),
            input_.state.vectors,
            EigenpairOptionsFrom(probe_.options_, probe_.engine_, hessian.space()), context_));
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
    ModelSession& session, const CurvatureOptions& options, const CurvatureEngineOptions& engine,
    const ExecutionContext& context, WorkShare share) {
  PTQWATCH_ASSIGN_OR_RETURN(CurvatureTarget target, MakeCurvatureTarget(session, options));
  std::unique_ptr<CurvatureProbe> probe(
      new CurvatureProbe(session, std::move(target), options, engine, std::move(share)));
  probe->sequences_ = CountSequences(session.curvature());
  const absl::Status tried = Guard([&] { return probe->Try(context); });
  if (tried.ok()) return probe;
  if (engine.mode != HessianMode::kAuto) {
    return absl::FailedPreconditionError(
        StrCat("curvature.mode = ", ToString(engine.mode), ": ", tried));
  }
  probe->held_.reset();
  probe->short_of_memory_ = absl::IsResourceExhausted(tried);
  probe->Disable(StrCat(tried));
  return probe;
}

absl::Status CurvatureProbe::Try(const ExecutionContext& context) {
  held_ = std::make_unique<Reservation>(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(
      held_->Take(KeptVectors() * VectorBytes(), "the vectors kept between snapshots"));
  Reservation trial(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(
      trial.Take(kTrialVectors * VectorBytes(), "trying products with the Hessian"));
  PTQWATCH_ASSIGN_OR_RETURN(trial_,
                            PrepareCurvature(session_.replica(), target_, engine_, context));
  return TimeGradients(context);
}

int64_t CurvatureProbe::VectorBytes() const {
  return SpaceOf(session_.replica(), target_.scope).bytes();
}

int64_t CurvatureProbe::KeptVectors() const {
  return kKeptVectors - (share_.Owns(share_.edge) ? 0 : kEdgeVectors);
}

int64_t CurvatureProbe::HeldVectors() const {
  return kHeldVectors - (OwnsErrors() ? 0 : kErrorVectors);
}

double CurvatureProbe::GradientsAMeasurement() const {
  double gradients = kSearchGradients;
  if (share_.Owns(share_.trace)) gradients += kTraceGradients;
  if (share_.Owns(share_.edge)) gradients += kEdgeGradients;
  if (share_.ranks == 1) return gradients + kErrorsGradients;
  return gradients + kErrorsGradients * static_cast<double>(share_.OwnQuantizers()) /
                         static_cast<double>(share_.quantizers.size());
}

CurvatureReport CurvatureProbe::Header() const {
  CurvatureReport report;
  report.scope = options_.scope;
  report.parameters = target_.parameters;
  if (!share_.Owns(share_.trace)) {
    report.trace_status = ProbeStatus::kOtherRank;
    report.trace_detail = OwnerDetail(share_.trace);
  }
  if (!share_.Owns(share_.edge)) {
    report.edge_of_stability_status = ProbeStatus::kOtherRank;
    report.edge_of_stability_detail = OwnerDetail(share_.edge);
  }
  return report;
}

int64_t CurvatureProbe::GraphBytes(int64_t sequences) const {
  if (!trial_.graph_bytes) return 0;
  const int64_t tried = std::max<int64_t>(1, CountSequences(trial_.target.batches));
  const int64_t a_batch = std::max<int64_t>(1, CountSequences({session_.curvature().front()}));
  const int64_t batches = (sequences + a_batch - 1) / a_batch;
  const int64_t fixed = trial_.graph_fixed_bytes;
  const int64_t a_sequence = (*trial_.graph_bytes - fixed) / tried;
  // Adds a product on one of the batches.
  return fixed * (batches + 1) + a_sequence * (sequences + std::min(sequences, a_batch));
}

absl::Status CurvatureProbe::TimeGradients(const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  int64_t graph_bytes = 0;
  const auto time = [&](const std::vector<Batch>& batches) -> absl::StatusOr<double> {
    PTQWATCH_ASSIGN_OR_RETURN(const auto surface,
                              ReplicaSurface::Create(&session_.replica(), target_.scope, &batches,
                                                     static_cast<double>(batches.size())));
    const MemoryMeter meter;
    Stopwatch watch(Clock::Real());
    const auto hessian = HessianOperator::Create(surface.get(), trial_.mode, context);
    PTQWATCH_RETURN_IF_ERROR(hessian.status());
    graph_bytes = meter.bytes() - surface->space().bytes();
    session_.Drain();
    return watch.Lap();
  };
  const std::vector<Batch>& few = trial_.target.batches;
  const auto few_sequences = static_cast<double>(CountSequences(few));
  PTQWATCH_ASSIGN_OR_RETURN(const double few_seconds, time(few));
  sequence_seconds_ = few_seconds / few_sequences;
  // If a sequence is little work, fixed costs dominate its time and memory, so that a whole batch
  // is timed as well.
  const std::vector<Batch> first = {session_.curvature().front()};
  const auto sequences = static_cast<double>(CountSequences(first));
  if (sequences > few_sequences && sequence_seconds_ * sequences < kLongestGradient &&
      GraphBytes(CountSequences(first)) <= context.bytes->remaining()) {
    const int64_t few_bytes = graph_bytes;
    PTQWATCH_ASSIGN_OR_RETURN(const double seconds, time(first));
    sequence_seconds_ = std::max(0.0, (seconds - few_seconds) / (sequences - few_sequences));
    fixed_seconds_ = std::max(0.0, few_seconds - sequence_seconds_ * few_sequences);
    if (trial_.mode == HessianMode::kRetainedGraph && trial_.graph_bytes) {
      const double each =
          static_cast<double>(graph_bytes - few_bytes) / (sequences - few_sequences);
      trial_.graph_bytes = few_bytes;
      trial_.graph_fixed_bytes =
          std::clamp<int64_t>(few_bytes - static_cast<int64_t>(each * few_sequences), 0, few_bytes);
    }
  }
  sequence_seconds_ *= GradientsAMeasurement();
  fixed_seconds_ *= GradientsAMeasurement();
  return absl::OkStatus();
}

absl::Status CurvatureProbe::SetUp(int64_t sequences, const ExecutionContext& context) {
  if (set_up_for_ == sequences) return absl::OkStatus();
  std::vector<Batch> batches =
      sequences >= sequences_ ? session_.curvature()
                              : FirstSequences(session_.replica(), session_.curvature(), sequences);
  PTQWATCH_ASSIGN_OR_RETURN(
      setup_, OnBatches(session_.replica(), trial_, std::move(batches), engine_, context));
  set_up_for_ = sequences;
  return absl::OkStatus();
}

ProbeResult CurvatureProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  CurvatureResult result{.report = Header()};
  result.report.status = status;
  result.report.status_detail = detail;
  ProbeResult measured;
  measured.outcome = {std::string(kName), OutcomeOf(status), StrCat("curvature: ", detail)};
  measured.value = std::move(result);
  return measured;
}

ProbeResult CurvatureProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  const int64_t sequences = input.place.plan ? input.place.plan->curvature_sequences : sequences_;
  const absl::Status set_up = Guard([&] { return SetUp(sequences, context); });
  if (!set_up.ok()) {
    ProbeResult failed = NotMeasured(ProbeStatusOf(set_up), StrCat(set_up));
    failed.vectors = input.state.vectors;
    return failed;
  }
  const HessianMode planned = setup_.mode;
  ProbeResult result = MeasureInModes(input, context);
  // The next snapshot may have more memory.
  setup_.mode = planned;
  return result;
}

ProbeResult CurvatureProbe::MeasureInModes(const ProbeInput& input,
                                           const ExecutionContext& context) {
  const VectorSpace space = SpaceOf(session_.replica(), target_.scope);
  const HessianMode planned = setup_.mode;
  std::string detail = setup_.mode_detail;
  std::map<std::string, double> cost_seconds;
  while (true) {
    Attempt attempt(*this, input, context);
    attempt.report = Header();
    attempt.report.mode = setup_.mode;
    if (setup_.mode == HessianMode::kFiniteDifference) attempt.report.mode_detail = detail;
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
    if (absl::IsResourceExhausted(status)) {
      // If the vectors themselves do not fit, a smaller mode does not help.
      const bool vectors_fit =
          CheckSpectrumMemory(space, SpectrumOptionsFrom(options_, engine_, space), context).ok();
      const std::optional<HessianMode> smaller = SmallerMode(setup_.mode);
      if (vectors_fit && engine_.mode == HessianMode::kAuto && smaller) {
        setup_.mode = *smaller;
        detail = std::string(status.message());
        continue;
      }
      if (DropQuantizedWeights(input)) {
        setup_.mode = planned;
        continue;
      }
    }
    ProbeResult failed = NotMeasured(ProbeStatusOf(status), StrCat(status));
    CurvatureReport& report = std::get<CurvatureResult>(failed.value).report;
    report.mode = setup_.mode;
    if (setup_.mode == HessianMode::kFiniteDifference) report.mode_detail = detail;
    failed.cost_seconds = std::move(cost_seconds);
    failed.vectors = input.state.vectors;
    return failed;
  }
}

ProbeNeeds CurvatureProbe::Needs(int64_t available) const {
  const int64_t vectors = HeldVectors() + kSearchVectors + KeptVectors();
  if (!disabled().empty()) {
    const int64_t moments = share_.Owns(share_.edge) ? kOptimizerVectors : 0;
    const int64_t wanted =
        (vectors + moments) * VectorBytes() + kGraphPasses * session_.bytes().forward;
    return {.text = StrCat("curvature: off, ", disabled(), "\n"),
            .lacking_bytes = short_of_memory_ ? wanted : 0};
  }
  std::string graphs;
  int64_t bytes = vectors * VectorBytes();
  if (trial_.graph_bytes) {
    if (trial_.mode == HessianMode::kRetainedGraph) {
      const int64_t room = engine_.mode == HessianMode::kAuto
                               ? std::min(engine_.max_graph_bytes, available)
                               : available;
      bytes += std::min(GraphBytes(sequences_), room);
    }
    graphs = StrFormat(", gradient graphs of %.1f MB",
                       1e-6 * static_cast<double>(GraphBytes(sequences_)));
  }
  return {.text = StrFormat("curvature: %s, %d parameters (%s), %d %s%s\n", ToString(trial_.mode),
                            target_.parameters, ToString(options_.scope), sequences_,
                            session_.one_loss_each() ? "examples" : "sequences",
                            trial_.mode_detail.empty()
                                ? graphs
                                : StrCat(", no exact products: ", trial_.mode_detail)),
          .bytes = bytes,
          .seconds = {.fixed = fixed_seconds_, .curvature_sequence = sequence_seconds_}};
}

}  // namespace ptqwatch::internal
