#include "probes/probe_suite.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/free_memory.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/averaging_probe.h"
#include "probes/mixed_precision_probe.h"

namespace ptqwatch::internal {
namespace {

// Of Create, for batches that are evaluated only to find mistakes in them.
constexpr double kMaxCheckSeconds = 10;

// The probe's result, whatever it does.
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
  return session;
}

absl::StatusOr<std::unique_ptr<ProbeSuite>> ProbeSuite::Create(
    std::unique_ptr<ModelSession> session, const MonitorOptions& options,
    const CurvatureEngineOptions& engine, const ExecutionContext& context) {
  std::unique_ptr<ProbeSuite> suite(new ProbeSuite(std::move(session), options));
  // The list of probes: each sees the results of those before it.
  PTQWATCH_ASSIGN_OR_RETURN(auto quantization,
                            QuantizationProbe::Create(*suite->session_, options));
  suite->quantization_ = quantization.get();
  suite->probes_.push_back(std::move(quantization));
  if (options.curvature.enabled) {
    PTQWATCH_ASSIGN_OR_RETURN(auto curvature,
                              CurvatureProbe::Create(*suite->session_, options, engine, context));
    suite->curvature_ = curvature.get();
    suite->probes_.push_back(std::move(curvature));
    if (options.mixed_precision) {
      auto mixed = MixedPrecisionProbe::Create(*suite->session_, options);
      if (mixed != nullptr) suite->probes_.push_back(std::move(mixed));
    }
  }
  if (options.averaging.enabled) {
    suite->probes_.push_back(std::make_unique<AveragingProbe>(
        *suite->session_, options, suite->curvature_, suite->Describe(context.bytes->remaining())));
  }
  return suite;
}

void ProbeSuite::Load(const Snapshot& snapshot) {
  session_->replica().Load(snapshot.tensors);
  at::NoGradGuard no_grad;
  optimizer_ = {};  // first, so that its memory serves again
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
  // Short of memory: the weights are worth a report without it.
  optimizer_.view.reset();
  optimizer_.problem = StrCat(copied);
}

bool ProbeSuite::HasWhatItNeeds(const Probe& probe) const {
  const std::vector<std::string_view> needs = probe.needs();
  return std::all_of(needs.begin(), needs.end(), [&](std::string_view name) {
    return std::any_of(probes_.begin(), probes_.end(), [&](const auto& other) {
      return other->name() == name && other->disabled().empty();
    });
  });
}

bool ProbeSuite::QuantizedWeightsAreUsed(const std::optional<Plan>& plan) const {
  return std::any_of(probes_.begin(), probes_.end(), [&](const auto& probe) {
    return probe->uses_quantized_weights() && probe->disabled().empty() && HasWhatItNeeds(*probe) &&
           probe->Due(plan);
  });
}

std::vector<ProbeDescription> ProbeSuite::Describe(int64_t available) const {
  std::vector<ProbeDescription> descriptions;
  for (const std::unique_ptr<Probe>& probe : probes_) {
    ProbeDescription& description = descriptions.emplace_back(probe->Describe(available));
    if (!QuantizedWeightsAreUsed(std::nullopt)) description.kept_bytes = 0;
    available -= description.kept_bytes;
  }
  return descriptions;
}

void ProbeSuite::FitBudget(ByteBudget& budget) const {
  if (max_bytes_ == 0) return;
  internal::FitBudget(max_bytes_, budget);
  if (const std::optional<int64_t> left = session_->DeviceBytesLeft()) {
    // What it held once its allocator keeps, and the device calls taken.
    const int64_t within = std::max(budget.used() + *left, budget.peak());
    budget.SetLimit(std::min(budget.limit(), within));
  }
}

void ProbeSuite::Collect(const SnapshotPlace& place, const ExecutionContext& context,
                         Measured& measured) {
  FitBudget(*context.bytes);
  for (const std::unique_ptr<Probe>& probe : probes_) {
    if (!probe->disabled().empty() || !HasWhatItNeeds(*probe)) continue;
    const WorkStopwatch watch(context);
    if (probe->Collect(place, context)) {
      measured.work_seconds[std::string(probe->name())] += watch.seconds();
    }
  }
}

absl::StatusOr<Measured> ProbeSuite::Measure(const SnapshotPlace& place, const ProbeState& state,
                                             const MeasureRequest& request,
                                             const ExecutionContext& context) {
  const ExecutionContext limited =
      max_snapshot_time_.count() > 0
          ? context.WithDeadline(context.clock->Monotonic() + max_snapshot_time_)
          : context;
  Measured measured;
  ProbeState next;
  next.sequence = place.sequence;
  Collect(place, context, measured);
  for (const std::unique_ptr<Probe>& probe : probes_) {
    if (!HasWhatItNeeds(*probe)) continue;
    request.poll();
    if (!probe->disabled().empty()) {
      measured.results.push_back(probe->NotMeasured(ProbeStatus::kDisabled, probe->disabled()));
      continue;
    }
    if (!probe->Due(place.plan)) {
      // What it left is where it goes on from.
      next.vectors.insert(state.vectors.begin(), state.vectors.end());
      continue;
    }
    FitBudget(*context.bytes);
    const ProbeInput input{
        .place = place,
        .optimizer = optimizer_,
        .state = state,
        .poll = request.poll,
        .earlier = absl::MakeSpan(measured.results),
        .keep_quantized = request.keep_quantized || QuantizedWeightsAreUsed(place.plan)};
    const WorkStopwatch watch(context);
    ProbeResult result = MeasureGuarded(*probe, input, limited);
    measured.work_seconds[std::string(probe->name())] += watch.seconds();
    if (context.cancel.cancelled()) return absl::CancelledError("the monitor is being stopped");
    next.vectors.merge(result.vectors);
    measured.results.push_back(std::move(result));
    measured.probe_state_sequence = state.sequence;
    measured.next = ProbeState();
  }
  if (measured.next) measured.next = std::move(next);
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
}

}  // namespace ptqwatch::internal
