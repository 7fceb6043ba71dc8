#include "monitor/trainer_side.h"

#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {

SnapshotHeader TrainerSide::Header(SnapshotTrigger trigger, bool additional,
                                   double unix_seconds) const noexcept {
  return {.info = *last_,
          .lr = lr_.state(),
          .trigger = trigger,
          .additional = additional,
          .unix_seconds = unix_seconds};
}

FillOutcome TrainerSide::Take(SnapshotTrigger trigger, bool additional,
                              double unix_seconds) noexcept {
  FillOutcome outcome =
      core_.staging->TryFill(*core_.subject, Header(trigger, additional, unix_seconds),
                             *core_.clock, trigger == SnapshotTrigger::kFinish);
  if (core_.max_stall_ratio > 0 && outcome.stall_seconds > kNoticedStallSeconds) {
    next_copy_ =
        InSeconds(core_.clock->Monotonic()) + outcome.stall_seconds / core_.max_stall_ratio;
  }
  if (outcome.pending) {
    pending_ = outcome;
  } else {
    Note(outcome);
  }
  return outcome;
}

FillOutcome TrainerSide::Take(SnapshotTrigger trigger, bool additional,
                              StepOutcome& outcome) noexcept {
  outcome.trigger = trigger;
  outcome.additional = additional;
  outcome.unix_seconds = core_.clock->UnixSeconds();
  const FillOutcome filled = Take(trigger, additional, outcome.unix_seconds);
  outcome.result = filled.result;
  outcome.stall_seconds = filled.stall_seconds;
  return filled;
}

void TrainerSide::Note(const FillOutcome& outcome) noexcept {
  if (outcome.result == SnapshotResult::kTaken) {
    ++taken_;
    last_taken_step_ = last_->step;
    lr_.Reported();
    wake_();
  }
  core_.board.OnSnapshot(outcome.result, outcome.stall_seconds);
  if (outcome.problem.empty()) return;
  try {
    not_taken_(Severity::kWarning,
               StrCat("no snapshot at step ", last_->step, ": ", outcome.problem));
  } catch (...) {
  }
  wake_();  // announces the skip
}

void TrainerSide::GatePending() noexcept {
  if (!core_.staging->pending()) return;
  if (const absl::Status status = core_.staging->Gate(); !status.ok()) {
    pending_ =
        FillOutcome::NotTaken(SnapshotResult::kFailed, pending_.stall_seconds, Message(status));
  }
  Note(pending_);
}

void TrainerSide::DiscardPending(std::string_view why) noexcept {
  if (!core_.staging->pending()) return;
  core_.staging->Discard();
  Note(FillOutcome::NotTaken(SnapshotResult::kFailed, pending_.stall_seconds, why));
}

void TrainerSide::End() noexcept {
  if (entered_.test_and_set(std::memory_order_acquire)) return;
  DiscardPending("the monitor was stopped");
  entered_.clear(std::memory_order_release);
}

void TrainerSide::BeforeUpdate() noexcept {
  // If another thread is inside, the next OnStep counts the pending snapshot.
  if (entered_.test_and_set(std::memory_order_acquire)) return;
  GatePending();
  entered_.clear(std::memory_order_release);
}

bool TrainerSide::HasTimeForMore() const noexcept {
  const TrainerSwitches& switches = core_.switches;
  return core_.staging->free() && !core_.board.busy() &&
         !switches.paused.load(std::memory_order_relaxed) &&
         !switches.idle.load(std::memory_order_relaxed) &&
         switches.rest_until_ns.load(std::memory_order_relaxed) <=
             core_.clock->Monotonic().count() &&
         // Ranks agree on steps, not on times: the stretch has left out what takes too long.
         (core_.several_ranks || switches.additional_seconds.load(std::memory_order_relaxed) <=
                                     schedule_.SecondsToNext(core_.board.seconds_a_step()));
}

StepOutcome TrainerSide::OnStep(const StepInfo& info) noexcept {
  if (entered_.test_and_set(std::memory_order_acquire)) {
    core_.board.OnConcurrentStep();
    return {.ignored = 1};
  }
  const StepOutcome outcome = Step(info);
  entered_.clear(std::memory_order_release);
  return outcome;
}

void TrainerSide::Replay(const StepInfo& info, const StepOutcome& outcome) noexcept {
  for (int64_t i = 0; i < outcome.ignored; ++i) core_.board.OnConcurrentStep();
  // Taken only if Finish is inside, which the trainer's process excludes.
  if (entered_.test_and_set(std::memory_order_acquire)) return core_.board.OnConcurrentStep();
  Follow(info, outcome.now, outcome.measuring);
  if (outcome.result) {
    const bool taken = *outcome.result == SnapshotResult::kTaken;
    // The slot does not hold a snapshot that was lost with an earlier process of the monitor.
    if (!taken ||
        core_.staging->Accept(*core_.subject,
                              Header(outcome.trigger, outcome.additional, outcome.unix_seconds),
                              outcome.stall_seconds)) {
      Note(FillOutcome::NotTaken(*outcome.result, outcome.stall_seconds, ""));
    }
    if (!taken) wake_();  // announces the skip
  }
  entered_.clear(std::memory_order_release);
}

FillOutcome TrainerSide::TakeLast() noexcept {
  if (entered_.test_and_set(std::memory_order_acquire)) {
    core_.board.OnConcurrentStep();
    return {.result = SnapshotResult::kSkippedConcurrent,
            .problem = "another thread is inside OnStep"};
  }
  FillOutcome outcome =
      Take(SnapshotTrigger::kFinish, /*additional=*/last_step_taken(), core_.clock->UnixSeconds());
  entered_.clear(std::memory_order_release);
  return outcome;
}

void TrainerSide::Follow(const StepInfo& info, double now, bool measuring) noexcept {
  if (core_.board.step_checks().OnStep(info)) wake_();  // the monitor thread announces mistakes
  lr_.Step(info.step, info.learning_rate, info.phase);
  if (core_.phases->Note(lr_.phase(), info.step)) wake_();
  core_.board.OnStep(info, lr_.phase(), now);
  core_.board.step_times().OnStep(now, measuring, last_taken_step_ == last_step());
  last_ = info;
}

StepOutcome TrainerSide::Step(const StepInfo& info) noexcept {
  const TrainerSwitches& switches = core_.switches;
  DiscardPending(
      "MonitorOptions.copy_beside_training is set, but Monitor::BeforeUpdate was not called before "
      "the update that followed");
  // Reading the clock takes longer than the rest of a step at which nothing is due.
  const double now = InSeconds(core_.clock->Monotonic());
  StepOutcome outcome{.now = now, .measuring = switches.measuring.load(std::memory_order_relaxed)};
  Follow(info, now, outcome.measuring);
  const Due kind = schedule_.Step(info.step, switches.every.load(std::memory_order_relaxed),
                                  lr_.phase() == LrPhase::kDecay, now,
                                  switches.stretch.load(std::memory_order_relaxed));
  const bool due = kind == Due::kYes;
  const int64_t requests = switches.requests.load(std::memory_order_relaxed);
  // A request reaches each rank at another step; they wait for one that all take.
  const bool requested =
      requests > requests_served_ && (!core_.several_ranks || schedule_.on_grid());
  if (!due && !requested) {
    if (kind == Due::kAdditional && !HoldsUpTooOften(now) && HasTimeForMore()) {
      Take(SnapshotTrigger::kInterval, /*additional=*/true, outcome);
    }
    return outcome;
  }
  const bool idle = switches.idle.load(std::memory_order_relaxed);
  if (idle || (switches.paused.load(std::memory_order_relaxed) && !requested)) {
    outcome.result = SnapshotResult::kSkippedPaused;
    core_.board.OnSnapshot(*outcome.result, 0);
    requests_served_ = requests;
    return outcome;
  }
  if (!requested &&
      (HoldsUpTooOften(now) ||
       switches.rest_until_ns.load(std::memory_order_relaxed) > core_.clock->Monotonic().count())) {
    outcome.result = SnapshotResult::kSkippedResting;
    core_.board.OnSnapshot(*outcome.result, 0);
    wake_();  // announces the skip
    return outcome;
  }
  if (!due && !core_.staging->free()) return outcome;  // the request waits; nothing was missed
  Take(requested ? SnapshotTrigger::kRequest : SnapshotTrigger::kInterval, /*additional=*/false,
       outcome);
  // Only a busy slot justifies another attempt at the next step.
  if (requested && outcome.result != SnapshotResult::kSkippedBusy) requests_served_ = requests;
  return outcome;
}

}  // namespace ptqwatch::internal
