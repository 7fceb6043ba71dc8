#include "monitor/trainer_side.h"

#include <utility>

#include "base/stopwatch.h"
#include "base/strings.h"
#include "budget/work_budget.h"

namespace ptqwatch::internal {

FillOutcome TrainerSide::Take(SnapshotTrigger trigger, bool additional) noexcept {
  NoteDrop();
  const SnapshotHeader header{.info = *last_,
                              .lr = lr_.state(),
                              .trigger = trigger,
                              .additional = additional,
                              .pass = pass_,
                              .unix_seconds = options_.clock->UnixSeconds()};
  FillOutcome outcome = filler_.TryFill(subject_, header, *options_.clock,
                                        /*last=*/trigger == SnapshotTrigger::kFinish);
  if (options_.max_stall_ratio > 0 && outcome.stall_seconds > kNoticedStallSeconds) {
    next_copy_ =
        InSeconds(options_.clock->Monotonic()) + outcome.stall_seconds / options_.max_stall_ratio;
  }
  if (outcome.pending) {
    pending_ = outcome;
  } else {
    Note(outcome);
  }
  return outcome;
}

void TrainerSide::Note(const FillOutcome& outcome) noexcept {
  if (outcome.result == SnapshotResult::kTaken) {
    const bool dropped = Dropped();  // since this snapshot was begun
    const LrState before = std::exchange(offered_lr_, lr_.state());
    offered_ = page_.slot.newest();
    lr_.Reported();
    if (dropped) TakeBack(before);
    wake_();
  }
  page_.board.OnSnapshot(outcome.result, outcome.stall_seconds);
  if (outcome.problem.empty()) return;
  try {
    not_taken_(Severity::kWarning,
               StrCat("no snapshot at step ", last_->step, ": ", outcome.problem));
  } catch (...) {
  }
  wake_();  // announces the skip
}

void TrainerSide::TakeBack(const LrState& lr) noexcept {
  lr_.NotReported(lr);
  page_.board.OnIncomplete();
}

void TrainerSide::NoteDrop() noexcept {
  if (!Dropped()) return;
  offered_ = 0;
  TakeBack(offered_lr_);
}

void TrainerSide::GatePending() noexcept {
  if (!filler_.pending()) return;
  if (const absl::Status status = filler_.Gate(); !status.ok()) {
    pending_ =
        FillOutcome::NotTaken(SnapshotResult::kFailed, pending_.stall_seconds, Message(status));
  }
  Note(pending_);
}

void TrainerSide::DiscardPending(std::string_view why) noexcept {
  if (!filler_.pending()) return;
  filler_.Discard();
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
  const TrainerSwitches& switches = page_.switches;
  if (options_.sharded) {  // Times and the measurer's state differ between ranks.
    return page_.slot.free() && !switches.paused.load(std::memory_order_relaxed) &&
           !switches.nothing_to_measure.load(std::memory_order_relaxed);
  }
  return page_.slot.free() && !switches.busy.load(std::memory_order_relaxed) &&
         !switches.paused.load(std::memory_order_relaxed) &&
         !switches.nothing_to_measure.load(std::memory_order_relaxed) &&
         switches.rest_until_ns.load(std::memory_order_relaxed) <=
             options_.clock->Monotonic().count() &&
         // Ranks agree on steps, not on times: the stretch has left out what takes too long.
         (options_.several_ranks || switches.additional_seconds.load(std::memory_order_relaxed) <=
                                        schedule_.SecondsToNext(page_.board.seconds_a_step()));
}

void TrainerSide::OnStep(const StepInfo& info) noexcept {
  if (entered_.test_and_set(std::memory_order_acquire)) return page_.board.OnConcurrentStep();
  Step(info);
  entered_.clear(std::memory_order_release);
}

FillOutcome TrainerSide::TakeLast() noexcept {
  if (entered_.test_and_set(std::memory_order_acquire)) {
    page_.board.OnConcurrentStep();
    return {.result = SnapshotResult::kSkippedConcurrent,
            .problem = "another thread is inside OnStep"};
  }
  FillOutcome outcome;
  const SnapshotHeader& held = page_.slot.header;
  if (last_ && page_.slot.filled() && held.info.step == last_->step && held.pass == pass_) {
    outcome.result = SnapshotResult::kTaken;
  } else if (last_) {
    outcome = Take(SnapshotTrigger::kFinish, /*additional=*/page_.slot.has_taken(last_->step));
  }
  entered_.clear(std::memory_order_release);
  return outcome;
}

void TrainerSide::Step(const StepInfo& info) noexcept {
  const TrainerSwitches& switches = page_.switches;
  TrainerBoard& board = page_.board;
  DiscardPending(
      "MonitorOptions.copy_beside_training is set, but Monitor::BeforeUpdate was not called before "
      "the update that followed");
  if (!past_known_ && page_.past_known.load(std::memory_order_acquire)) {
    past_known_ = true;
    lr_.Continue(page_.past);
  }
  // Reading the clock takes longer than the rest of a step at which nothing is due.
  const double now = InSeconds(options_.clock->Monotonic());
  if (board.step_checks().OnStep(info)) wake_();  // the measuring half announces mistakes
  lr_.Step(info.step, info.learning_rate, info.phase);
  if (past_known_ && board.phase_changes().Note(lr_.phase(), info.step)) wake_();
  board.OnStep(info, lr_.phase(), now);
  board.step_times().OnStep(now, switches.measuring.load(std::memory_order_relaxed),
                            last_ && page_.slot.has_taken(last_->step));
  if (last_ && info.step <= last_->step) ++pass_;
  last_ = info;
  if (options_.sharded) NoteDrop();
  const Due kind = schedule_.Step(info.step, switches.every.load(std::memory_order_relaxed),
                                  lr_.phase() == LrPhase::kDecay, now,
                                  switches.stretch.load(std::memory_order_relaxed));
  const bool due = kind == Due::kYes;
  const int64_t requests = switches.requests.load(std::memory_order_relaxed);
  // A request reaches each rank at another step; they wait for one that all take.
  const bool requested =
      requests > requests_served_ && (!options_.several_ranks || schedule_.on_grid());
  if (!due && !requested) {
    if (kind == Due::kAdditional && !HoldsUpTooOften(now) && HasTimeForMore()) {
      Take(SnapshotTrigger::kInterval, /*additional=*/true);
    }
    return;
  }
  const bool nothing_to_measure = switches.nothing_to_measure.load(std::memory_order_relaxed);
  if (nothing_to_measure || (switches.paused.load(std::memory_order_relaxed) && !requested)) {
    board.OnSnapshot(SnapshotResult::kSkippedPaused, 0);
    requests_served_ = requests;
    return;
  }
  if (!requested && !options_.sharded &&
      (HoldsUpTooOften(now) || switches.rest_until_ns.load(std::memory_order_relaxed) >
                                   options_.clock->Monotonic().count())) {
    board.OnSnapshot(SnapshotResult::kSkippedResting, 0);
    wake_();  // announces the skip
    return;
  }
  if (!due && !page_.slot.free()) return;  // the request waits; nothing was missed
  const FillOutcome taken = Take(requested ? SnapshotTrigger::kRequest : SnapshotTrigger::kInterval,
                                 /*additional=*/false);
  // Only a busy slot justifies another attempt at the next step.
  if (requested && taken.result != SnapshotResult::kSkippedBusy) requests_served_ = requests;
}

}  // namespace ptqwatch::internal
