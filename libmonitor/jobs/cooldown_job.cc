#include "jobs/cooldown_job.h"

#include <utility>

#include "analysis/decay_end.h"
#include "base/guard.h"
#include "base/strings.h"
#include "session/trained_parameters.h"

namespace ptqwatch::internal {
namespace {

// Once a decay has begun, its end no longer needs a prediction.
bool BeforeDecay(LrPhase phase) {
  return phase == LrPhase::kStable || phase == LrPhase::kSlowDecay || phase == LrPhase::kUnknown;
}

// `planned` is the length for a request without one; 0: the request must give a length.
absl::StatusOr<CooldownStatus> CheckCooldown(int64_t planned, const StartCooldown& request) {
  if (request.decay_steps < 0) {
    return absl::InvalidArgumentError(
        StrCat("decay_steps = ", request.decay_steps, ": must be positive"));
  }
  const int64_t decay_steps = request.decay_steps > 0 ? request.decay_steps : planned;
  if (decay_steps == 0) {
    return absl::InvalidArgumentError(
        "decay_steps = 0: the length of the planned decay is in neither the request nor "
        "MonitorOptions.cooldown.decay_steps");
  }
  return CooldownStatus{.state = CooldownState::kWaiting, .decay_steps = decay_steps};
}

}  // namespace

CooldownJob::CooldownJob(ModelSession& session, const CooldownOptions& options,
                         const QuantizationOptions& quantization, Probe* curvature,
                         CooldownTracker& tracker)
    : session_(session),
      options_(options),
      measurement_(session, quantization),
      curvature_(curvature),
      tracker_(tracker),
      trained_(TrainedParameters(session)) {
  if (session.subject().CanTrainReplica()) {
    tracker_.Open([planned = options_.decay_steps](const StartCooldown& request) {
      return CheckCooldown(planned, request);
    });
  } else {
    tracker_.Close("the subject cannot train its replica: train_step is not set");
  }
}

std::string CooldownJob::Describe() const {
  if (!session_.subject().CanTrainReplica()) return "";
  if (options_.decay_steps == 0) return "shadow cooldowns: on request\n";
  int64_t steps = 0;
  for (const DecayPlan& decay : PlanDecays(options_, options_.decay_steps)) {
    steps += decay.settle_steps + decay.steps;
  }
  const std::string when = options_.every_snapshots > 0 ? StrCat("every ", options_.every_snapshots,
                                                                 " snapshots of the plateau")
                                                        : "on request";
  return StrFormat("shadow cooldowns: %s, %d steps each for a %s decay of %d\n", when, steps,
                   ToString(options_.shape), options_.decay_steps);
}

JobStatus CooldownJob::Status() const {
  return {.work = run_ == nullptr ? JobStatus::Work::kNone : JobStatus::Work::kWhenSpare};
}

ResultValue CooldownJob::Result() const { return newest_ ? ResultValue(*newest_) : ResultValue(); }

void CooldownJob::Abandon(const std::string& reason) {
  run_.reset();
  tracker_.Fail(reason);
}

void CooldownJob::Close(const std::string& reason) {
  run_.reset();
  tracker_.Close(reason);
}

bool CooldownJob::Scheduled(const SnapshotPlace& place) {
  if (options_.every_snapshots == 0 || options_.decay_steps == 0) return false;
  if (!place.regular || !BeforeDecay(place.lr_phase)) return false;
  return ++seen_ % options_.every_snapshots == 0;
}

void CooldownJob::Begin(const JobInput& input, const ExecutionContext& context) {
  if (input.place.plan && input.place.plan->curvature_sequences > 0) {
    curvature_sequences_ = input.place.plan->curvature_sequences;
  }
  const bool scheduled = Scheduled(input.place);
  if (run_ != nullptr) return;
  if (tracker_.status().state != CooldownState::kWaiting) {
    if (!scheduled || !tracker_.Accept({}).ok()) return;
  }
  const auto* quantization = FindResult<QuantizationResult>(input.results);
  if (quantization == nullptr || quantization->status != ProbeStatus::kOk) {
    // A request is retried at the next snapshot.
    if (scheduled) {
      tracker_.Fail(StrCat("the snapshot of step ", input.place.step, " was not measured"));
    }
    return;
  }
  BeginFrom(input.place, input.callbacks, context);
}

void CooldownJob::BeginFrom(SnapshotPlace place, const JobCallbacks& callbacks,
                            const ExecutionContext& context) {
  const CooldownStatus status = tracker_.status();
  if (place.plan) place.plan->curvature_sequences = curvature_sequences_;
  auto run = CooldownRun::Begin({.session = session_,
                                 .measurement = measurement_,
                                 .curvature = curvature_,
                                 .trained = trained_,
                                 .options = options_},
                                place, status.decay_steps, context);
  if (!run.ok()) {
    tracker_.Fail(StrCat(run.status()));
    callbacks.announce(Event::Kind::kCooldown, Severity::kWarning, place.step,
                       StrCat("shadow cooldown from step ", place.step, ": ", run.status()));
    return;
  }
  run_ = *std::move(run);
  number_ = status.number;
  UpdateProgress();
  callbacks.announce(
      Event::Kind::kCooldown, Severity::kInfo, place.step,
      StrFormat("shadow cooldown from step %d: simulating %d steps for a %s decay of %d",
                run_->step(), run_->steps_all(), ToString(options_.shape), status.decay_steps));
}

void CooldownJob::UpdateProgress() {
  tracker_.Update([&](CooldownStatus& status) {
    if (status.number != number_) return;
    status.state = CooldownState::kSimulating;
    status.step = run_->step();
    status.steps_done = run_->steps_done();
    status.steps_all = run_->steps_all();
    status.waits_for_core = false;
  });
}

bool CooldownJob::Cancelled() const {
  const CooldownStatus status = tracker_.status();
  return status.number != number_ || !status.under_way();
}

void CooldownJob::WaitForCore(const JobCallbacks& callbacks) {
  tracker_.Update(
      [&](CooldownStatus& status) { status.waits_for_core = status.number == number_; });
  if (std::exchange(waiting_, true)) return;
  callbacks.announce(Event::Kind::kCooldown, Severity::kInfo, run_->step(),
                     "the shadow cooldown waits for a spare core: on one that training uses it "
                     "would cost more than MonitorOptions.max_overhead");
}

void CooldownJob::Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
                          const ExecutionContext& context) {
  waiting_ = false;
  const int64_t step = run_->step();
  const absl::StatusOr<bool> ended = Guard([&] {
    return run_->Advance(
        [&] {
          UpdateProgress();
          return Cancelled() || stop();
        },
        context);
  });
  if (Cancelled()) {
    run_.reset();
    callbacks.announce(Event::Kind::kCooldown, Severity::kInfo, step,
                       StrCat("shadow cooldown from step ", step, ": ", tracker_.status().error));
    return;
  }
  if (ended.ok() && !*ended) return;
  if (context.cancel.cancelled()) return run_.reset();
  End(ended.status(), callbacks);
}

void CooldownJob::End(const absl::Status& status, const JobCallbacks& callbacks) {
  PredictedEnd end = run_->Result(status);
  UpdateProgress();
  run_.reset();
  if (end.status == ProbeStatus::kOk) {
    const std::string result = DescribePrediction(end);
    tracker_.Update([&](CooldownStatus& cooldown) {
      cooldown.state = CooldownState::kDone;
      cooldown.result = result;
    });
    callbacks.announce(Event::Kind::kCooldown, Severity::kInfo, end.step,
                       StrCat("shadow cooldown from ", result));
    newest_ = std::move(end);
    return;
  }
  tracker_.Fail(end.status_detail);
  callbacks.announce(Event::Kind::kCooldown, Severity::kWarning, end.step,
                     StrCat("shadow cooldown from step ", end.step, ": ", end.status_detail));
  // A successful prediction is kept if the next cooldown fails.
  if (!newest_ || newest_->status != ProbeStatus::kOk) newest_ = std::move(end);
}

}  // namespace ptqwatch::internal
