#include "probes/cooldown_probe.h"

#include <algorithm>
#include <utility>

#include "analysis/decay_end.h"
#include "base/guard.h"
#include "base/strings.h"
#include "session/trained_parameters.h"

namespace ptqwatch::internal {
namespace {

// A decay that has begun is no longer one to come.
bool BeforeDecay(LrPhase phase) {
  return phase == LrPhase::kStable || phase == LrPhase::kSlowDecay || phase == LrPhase::kUnknown;
}

}  // namespace

CooldownProbe::CooldownProbe(ModelSession& session, const MonitorOptions& options, Probe* curvature,
                             CooldownTracker* tracker)
    : session_(session),
      options_(options.cooldown),
      measurement_(session, options),
      curvature_(curvature),
      tracker_(tracker),
      trained_(TrainedParameters(session)) {
  if (!session.subject().CanTrainReplica()) {
    Disable("the subject cannot train its replica: train_step is not set");
    return;
  }
  tracker_->Open(options_.decay_steps);
}

void CooldownProbe::Disable(std::string reason) {
  run_.reset();
  tracker_->Close(reason);
  Probe::Disable(std::move(reason));
}

ProbeDescription CooldownProbe::Describe(int64_t /*available*/) const {
  if (!disabled().empty()) return {};
  if (options_.decay_steps == 0) return {.text = "shadow cooldowns: on request\n"};
  int64_t steps = 0;
  for (const DecayPlan& decay : PlanDecays(options_, options_.decay_steps)) {
    steps += decay.settle_steps + decay.steps;
  }
  const std::string when = options_.every_snapshots > 0 ? StrCat("every ", options_.every_snapshots,
                                                                 " snapshots of the plateau")
                                                        : "on request";
  std::string text = StrFormat("shadow cooldowns: %s, %d steps each for a %s decay of %d\n", when,
                               steps, ToString(options_.shape), options_.decay_steps);
  return {.text = std::move(text)};
}

ProbeResult CooldownProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  return {.outcome = {std::string(kName), OutcomeOf(status), std::move(detail)},
          .value = SliceResult()};
}

bool CooldownProbe::Scheduled(const SnapshotPlace& place) {
  if (options_.every_snapshots == 0 || options_.decay_steps == 0) return false;
  if (!place.regular || !BeforeDecay(place.lr_phase)) return false;
  return ++seen_ % options_.every_snapshots == 0;
}

ProbeResult CooldownProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  ProbeResult nothing{.outcome = {std::string(kName)}, .value = SliceResult()};
  if (input.place.plan && input.place.plan->curvature_sequences > 0) {
    curvature_sequences_ = input.place.plan->curvature_sequences;
  }
  const bool scheduled = Scheduled(input.place);
  if (run_ != nullptr) return nothing;
  if (tracker_->status().state != CooldownState::kWaiting) {
    if (!scheduled || !tracker_->Accept({}).ok()) return nothing;
  }
  const QuantizationResult* quantization = input.Earlier<QuantizationResult>();
  if (quantization == nullptr || quantization->status != ProbeStatus::kOk) {
    // The next snapshot may do.
    if (scheduled) {
      tracker_->Fail(StrCat("the snapshot of step ", input.place.step, " was not measured"));
    }
    return nothing;
  }
  Begin(input.place, input.callbacks, context);
  return nothing;
}

void CooldownProbe::Begin(SnapshotPlace place, const ProbeCallbacks& callbacks,
                          const ExecutionContext& context) {
  const CooldownStatus status = tracker_->status();
  if (place.plan) place.plan->curvature_sequences = curvature_sequences_;
  auto run = CooldownRun::Begin({.session = session_,
                                 .measurement = measurement_,
                                 .curvature = curvature_,
                                 .trained = trained_,
                                 .options = options_},
                                place, status.decay_steps, context);
  if (!run.ok()) {
    const std::string reason = StrCat("shadow cooldown from step ", place.step, ": ", run.status());
    tracker_->Fail(StrCat(run.status()));
    callbacks.announce(Event::Kind::kCooldown, Severity::kWarning, reason);
    return;
  }
  run_ = *std::move(run);
  number_ = status.number;
  step_ = place.step;
  tracker_->Progress(run_->step(), 0, run_->steps_all());
  callbacks.announce(
      Event::Kind::kCooldown, Severity::kInfo,
      StrFormat("shadow cooldown from step %d: simulating %d steps for a %s decay of %d",
                run_->step(), run_->steps_all(), ToString(options_.shape), status.decay_steps));
}

void CooldownProbe::Advance(absl::FunctionRef<bool()> stop, const ProbeCallbacks& callbacks,
                            const ExecutionContext& context) {
  if (run_ == nullptr) return;
  const auto cancelled = [&] {
    const CooldownStatus status = tracker_->status();
    return status.number != number_ || !status.under_way();
  };
  const absl::StatusOr<bool> ended = Guard([&] {
    return run_->Advance(
        [&] {
          tracker_->Progress(run_->step(), run_->steps_done(), run_->steps_all());
          return cancelled() || stop();
        },
        context);
  });
  if (cancelled()) {
    callbacks.announce(
        Event::Kind::kCooldown, Severity::kInfo,
        StrCat("shadow cooldown from step ", run_->step(), ": ", tracker_->status().error));
    run_.reset();
    return;
  }
  if (ended.ok() && !*ended) return;
  if (context.cancel.cancelled()) return run_.reset();
  End(ended.status(), callbacks);
}

void CooldownProbe::End(const absl::Status& status, const ProbeCallbacks& callbacks) {
  PredictedEnd end = run_->Result(status);
  tracker_->Progress(run_->step(), run_->steps_done(), run_->steps_all());
  run_.reset();
  if (end.status == ProbeStatus::kOk) {
    const std::string result = DescribePrediction(end);
    tracker_->Done(result);
    callbacks.announce(Event::Kind::kCooldown, Severity::kInfo,
                       StrCat("shadow cooldown from ", result));
    newest_ = std::move(end);
    return;
  }
  tracker_->Fail(end.status_detail);
  callbacks.announce(Event::Kind::kCooldown, Severity::kWarning,
                     StrCat("shadow cooldown from step ", end.step, ": ", end.status_detail));
  // A prediction is worth more than the news that the next one failed.
  if (!newest_ || newest_->status != ProbeStatus::kOk) newest_ = std::move(end);
}

void CooldownProbe::Abandon(const std::string& reason) {
  run_.reset();
  tracker_->Fail(reason);
}

}  // namespace ptqwatch::internal
