#include "probes/probe_suite.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/free_memory.h"
#include "base/guard.h"
#include "base/longest_time.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/averaging_probe.h"
#include "probes/further_probe.h"
#include "probes/merge_probe.h"
#include "probes/mixed_precision_probe.h"
#include "probes/noise_probe.h"
#include "probes/other_rank_probe.h"

namespace ptqwatch::internal {
namespace {

// Time limit in Create for batches that are evaluated only to find mistakes in them.
constexpr double kMaxCheckSeconds = 10;
// Margin for reservations of a layer's quantization that its probe does not count.
constexpr int64_t kUnnamedBytes = int64_t{1} << 17;

// Turns errors and exceptions into a result.
ProbeResult MeasureGuarded(Probe& probe, const ProbeInput& input, const ExecutionContext& context) {
  absl::StatusOr<ProbeResult> result =
      Guard([&]() -> absl::StatusOr<ProbeResult> { return probe.Measure(input, context); });
  if (result.ok()) return *std::move(result);
  return probe.NotMeasured(ProbeStatusOf(result.status()), StrCat(result.status()));
}

}  // namespace

ModelSessionOptions SessionOptions(const MonitorOptions& options,
                                   const CurvatureEngineOptions& engine,
                                   std::shared_ptr<ByteBudget> bytes) {
  ModelSessionOptions session;
  session.probe = true;
  session.calibration = true;
  session.further_probe_sets = options.further_probe_sets;
  session.capture =
      CaptureRequest{.layers = options.layers, .max_gram_bytes = options.max_gram_bytes};
  if (options.curvature.enabled) {
    session.curvature = CurvatureBatchesRequest{.micro_batch = engine.micro_batch};
  }
  session.snapshots = true;
  session.max_check_seconds = kMaxCheckSeconds;
  session.device = options.monitor_device;
  session.device_reserve_bytes = options.device_reserve_bytes;
  session.bytes = std::move(bytes);
  if (options.max_bytes > 0) session.max_device_bytes = options.max_bytes;
  return session;
}

std::vector<MakeProbe> AllProbes() {
  using Made = absl::StatusOr<std::unique_ptr<Probe>>;
  return {
      [](ProbeParts& parts) -> Made {
        QuantizationOptions options = QuantizationOptionsOf(parts.options);
        options.owners = parts.share.quantizers;
        options.rank = parts.share.rank;
        options.artifact_size = parts.options.artifact_size;
        PTQWATCH_ASSIGN_OR_RETURN(auto probe, QuantizationProbe::Create(parts.session, options));
        parts.quantization = probe.get();
        return probe;
      },
      [](ProbeParts& parts) -> Made {
        if (!parts.options.curvature.enabled) return nullptr;
        if (!parts.share.OwnsCurvature()) {
          return CurvatureOfOther(parts.share.edge, parts.options.curvature);
        }
        ExecutionContext context = parts.context;
        context.seeds = SeedSource(parts.options.seed);
        PTQWATCH_ASSIGN_OR_RETURN(
            auto probe, CurvatureProbe::Create(parts.session, parts.options.curvature, parts.engine,
                                               context, parts.share));
        parts.curvature = probe.get();
        return probe;
      },
      [](ProbeParts& parts) -> Made {
        if (!parts.options.curvature.enabled || !parts.options.mixed_precision) return nullptr;
        const int64_t owner = parts.share.mixed_precision;
        if (!parts.share.Owns(owner)) return MixedPrecisionOfOther(owner, parts.options);
        return MixedPrecisionProbe::Create(parts.session, parts.options.quantizers,
                                           parts.options.overrides,
                                           ComparisonOptionsOf(parts.options));
      },
      [](ProbeParts& parts) -> Made {
        if (!parts.options.averaging.enabled) return nullptr;
        const int64_t owner = parts.share.averaging;
        if (!parts.share.Owns(owner)) return AveragingOfOther(owner, parts.options.averaging);
        return std::make_unique<AveragingProbe>(parts.session, parts.options.averaging,
                                                QuantizationOptionsOf(parts.options), parts.recent);
      },
      [](ProbeParts& parts) -> Made {
        if (!parts.options.averaging.enabled || !parts.options.averaging.merges) return nullptr;
        // On other ranks, the averages' probe stands for the merges too.
        if (!parts.share.Owns(parts.share.averaging)) return nullptr;
        return std::make_unique<MergeProbe>(
            parts.session, parts.options.averaging, QuantizationOptionsOf(parts.options),
            parts.quantization->Needs(INT64_MAX).seconds,
            static_cast<size_t>(parts.share.OwnQuantizers()), parts.recent);
      },
      [](ProbeParts& parts) -> Made {
        if (parts.options.noise_relative_norm == 0) return nullptr;
        const int64_t owner = parts.share.noise;
        if (!parts.share.Owns(owner)) {
          return NoiseOfOther(owner, parts.options.noise_relative_norm);
        }
        return NoiseProbe::Create(parts.session, parts.options.noise_relative_norm,
                                  parts.options.seed);
      },
      [](ProbeParts& parts) -> Made {
        if (parts.options.further_probe_sets == 0) return nullptr;
        return std::make_unique<FurtherProbe>(parts.session, parts.options, parts.share,
                                              parts.quantization->Needs(INT64_MAX).seconds,
                                              static_cast<size_t>(parts.share.OwnQuantizers()));
      },
  };
}

ProbeSuite::ProbeSuite(std::unique_ptr<ModelSession> session, const MonitorOptions& options)
    : session_(std::move(session)),
      max_snapshot_time_(options.max_snapshot_time),
      host_limit_(session_->budgets().host == nullptr ? INT64_MAX
                                                      : session_->budgets().host->limit()),
      share_(ShareOfWork(*session_, options)),
      recent_(session_->replica(), options.averaging) {}

absl::StatusOr<std::unique_ptr<ProbeSuite>> ProbeSuite::Create(
    std::unique_ptr<ModelSession> session, const MonitorOptions& options,
    const CurvatureEngineOptions& engine, const ExecutionContext& context,
    const std::vector<MakeProbe>& list) {
  std::unique_ptr<ProbeSuite> suite(new ProbeSuite(std::move(session), options));
  ProbeParts parts{*suite->session_, options, engine, context, suite->recent_, suite->share_};
  for (const MakeProbe& make : list) {
    PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<Probe> probe, make(parts));
    if (probe == nullptr) continue;
    suite->probes_.push_back(std::move(probe));
  }
  suite->quantization_ = parts.quantization;
  suite->curvature_ = parts.curvature;
  suite->SetAsideForMeasuring(context.bytes->remaining());
  return suite;
}

void ProbeSuite::SetAsideForMeasuring(int64_t available) {
  const bool kept_for_others = QuantizedWeightsAreUsed(std::nullopt);
  int64_t kept = 0;
  int64_t measuring = 0;
  for (const std::unique_ptr<Probe>& probe : probes_) {
    const ProbeNeeds needs =
        probe->Needs(probe->traits().uses_recent_weights ? INT64_MAX : available - kept);
    measuring = std::max(measuring, kept + needs.bytes);
    if (kept_for_others) kept += needs.kept_bytes;
  }
  // Needs give the bytes held at a time, but quantizing a layer reserves everything it uses.
  recent_.SetAside(measuring + quantization_->layer_bytes() + kUnnamedBytes, kept);
}

void ProbeSuite::Load(const Snapshot& snapshot) {
  session_->replica().Load(snapshot.tensors);
  at::NoGradGuard no_grad;
  optimizer_ = {};  // first, so that its memory can be reused
  optimizer_ = snapshot.optimizer;
  if (!optimizer_.view) return;
  const absl::Status copied = Guard([&] {
    for (OptimizedParameter& parameter : optimizer_.view->parameters) {
      if (parameter.second_moment.defined()) {
        const at::Tensor& moment = parameter.second_moment;
        parameter.second_moment = moment.to(moment.options().device(session_->replica().device()),
                                            /*non_blocking=*/false, /*copy=*/true);
      }
    }
    return absl::OkStatus();
  });
  if (copied.ok()) return;
  // If memory is short, the weights are still worth a report.
  optimizer_.view.reset();
  optimizer_.problem = StrCat(copied);
}

bool ProbeSuite::HasItsInputs(const Probe& probe) const {
  const std::vector<std::string_view>& uses = probe.traits().uses;
  return std::all_of(uses.begin(), uses.end(), [&](std::string_view name) {
    return std::any_of(probes_.begin(), probes_.end(), [&](const auto& other) {
      return other->name() == name && other->disabled().empty();
    });
  });
}

bool ProbeSuite::Runs(const Probe& probe) const {
  return probe.disabled().empty() && HasItsInputs(probe);
}

bool ProbeSuite::MeasuresCurvature() const {
  return curvature_ != nullptr && curvature_->disabled().empty();
}

bool ProbeSuite::Due(const Probe& probe, const std::optional<Plan>& plan) const {
  return !probe.traits().with_curvature || !MeasuresCurvature() || !plan ||
         plan->curvature_sequences > 0;
}

bool ProbeSuite::QuantizedWeightsAreUsed(const std::optional<Plan>& plan) const {
  return std::any_of(probes_.begin(), probes_.end(), [&](const auto& probe) {
    return probe->traits().uses_quantized_weights && Runs(*probe) && Due(*probe, plan);
  });
}

bool ProbeSuite::RecentWeightsAreUsed() const {
  return std::any_of(probes_.begin(), probes_.end(), [&](const auto& probe) {
    return probe->traits().uses_recent_weights && Runs(*probe);
  });
}

std::vector<ProbeNeeds> ProbeSuite::Needs(int64_t available) const {
  std::vector<ProbeNeeds> all;
  for (const std::unique_ptr<Probe>& probe : probes_) {
    ProbeNeeds& needs = all.emplace_back(probe->Needs(available));
    if (!QuantizedWeightsAreUsed(std::nullopt)) needs.kept_bytes = 0;
    available -= needs.kept_bytes;
    needs.seconds.probe = probe->name();
    needs.seconds.with_curvature = probe->traits().with_curvature && MeasuresCurvature();
  }
  return all;
}

std::vector<ProbeCost> ProbeSuite::Costs() const {
  std::vector<ProbeCost> costs;
  for (const ProbeNeeds& needs : Needs(INT64_MAX)) costs.push_back(needs.seconds);
  return costs;
}

void ProbeSuite::FitBudgets() const {
  if (host_limit_ != INT64_MAX) internal::FitBudget(host_limit_, *session_->budgets().host);
  session_->FitDeviceBudget();
}

absl::StatusOr<Measured> ProbeSuite::Measure(const SnapshotPlace& place, const ProbeState& state,
                                             const MeasureRequest& request,
                                             const ExecutionContext& context) {
  const ExecutionContext limited =
      max_snapshot_time_.count() > 0
          ? context.WithDeadline(context.clock->Monotonic() + AtMostAYear(max_snapshot_time_))
          : context;
  Measured measured;
  ProbeState next;
  next.sequence = place.sequence;
  FitBudgets();
  if (RecentWeightsAreUsed()) {
    const WorkStopwatch watch(context);
    recent_.Take(place.step, place.regular, context);
    measured.work_seconds["recent weights"] = watch.seconds();
  }
  for (const std::unique_ptr<Probe>& probe : probes_) {
    if (!HasItsInputs(*probe)) continue;
    request.poll();
    if (!probe->disabled().empty()) {
      measured.results.push_back(probe->NotMeasured(ProbeStatus::kDisabled, probe->disabled()));
      continue;
    }
    if (!Due(*probe, place.plan)) {
      // Carries the probe's warm starts over.
      next.vectors.insert(state.vectors.begin(), state.vectors.end());
      continue;
    }
    FitBudgets();
    const ProbeInput input{
        .place = place,
        .optimizer = optimizer_,
        .state = state,
        .poll = request.poll,
        .earlier = absl::MakeSpan(measured.results),
        .keep_quantized = request.keep_quantized || QuantizedWeightsAreUsed(place.plan)};
    const WorkStopwatch watch(context);
    ProbeResult result = MeasureGuarded(*probe, input, limited);
    // A probe that found nothing to measure has not shown its cost.
    if (!result.cost_seconds.empty() || result.outcome.kind != ProbeOutcome::Kind::kOk) {
      measured.work_seconds[std::string(probe->name())] += watch.seconds();
    }
    if (context.cancel.cancelled()) return absl::CancelledError("the monitor is being stopped");
    next.vectors.merge(result.vectors);
    measured.results.push_back(std::move(result));
    measured.probe_state_sequence = state.sequence;
    measured.next = ProbeState();
  }
  if (measured.next) measured.next = std::move(next);
  measured.cut_short = context.clock->Monotonic() >= limited.deadline;
  return measured;
}

Measured ProbeSuite::NotMeasured(const absl::Status& status) const {
  Measured measured;
  measured.results.push_back(probes_.front()->NotMeasured(ProbeStatusOf(status), StrCat(status)));
  return measured;
}

void ProbeSuite::Disable(std::string_view name, const std::string& reason) {
  for (const std::unique_ptr<Probe>& probe : probes_) {
    if (probe->name() == name) probe->Disable(reason);
  }
  if (!RecentWeightsAreUsed()) recent_.Clear();
}

}  // namespace ptqwatch::internal
