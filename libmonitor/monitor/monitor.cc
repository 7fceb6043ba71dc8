#include "ptqwatch/monitor.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "monitor/monitor_impl.h"

namespace ptqwatch {

namespace {

// milliseconds::max() would overflow the clock.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

}  // namespace

Monitor::Monitor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Monitor::~Monitor() { Stop(std::chrono::seconds(2)).IgnoreError(); }

internal::FillOutcome Monitor::Impl::Take(SnapshotTrigger trigger) noexcept {
  internal::FillOutcome outcome =
      core->staging->TryFill(*core->subject,
                             {.info = *last,
                              .lr = lr.state(),
                              .trigger = trigger,
                              .unix_seconds = core->options.clock->UnixSeconds()},
                             *core->options.clock);
  if (outcome.result == SnapshotResult::kTaken) {
    ++taken;
    last_taken_step = last->step;
    lr.Reported();
    worker->Wake();
  }
  core->board->OnSnapshot(outcome.result, outcome.stall_seconds);
  if (!outcome.problem.empty()) {
    try {
      skipped(Severity::kWarning,
              internal::StrCat("no snapshot at step ", last->step, ": ", outcome.problem));
    } catch (...) {
    }
    worker->Wake();  // announces the skip
  }
  return outcome;
}

void Monitor::OnStep(const StepInfo& info) noexcept {
  Impl& impl = *impl_;
  if (impl.core == nullptr || impl.stopped.load(std::memory_order_relaxed)) return;
  internal::MonitorCore& core = *impl.core;
  impl.lr.Step(info.step, info.learning_rate, info.phase);
  core.board->OnStep(info, impl.lr.phase(), core.options.clock->UnixSeconds());
  impl.last = info;
  const bool due = impl.schedule.Due(info.step, core.inbox.every());
  const bool requested = core.inbox.requested();
  if (!due && !requested) return;
  if (core.inbox.paused() && !requested) {
    core.board->OnSnapshot(SnapshotResult::kSkippedPaused, 0);
    return;
  }
  if (!due && !core.staging->free()) return;  // the request waits; nothing was missed
  const SnapshotResult result =
      impl.Take(requested ? SnapshotTrigger::kRequest : SnapshotTrigger::kInterval).result;
  // Only a busy slot is worth another try at the next step.
  if (requested && result != SnapshotResult::kSkippedBusy) core.inbox.RequestDone();
}

void Monitor::RequestSnapshot() noexcept {
  if (impl_->core != nullptr) impl_->core->inbox.RequestSnapshot();
}

absl::Status Monitor::Finish(std::chrono::milliseconds timeout) {
  timeout = std::min(timeout, kLongest);
  Impl& impl = *impl_;
  if (impl.core == nullptr) return absl::OkStatus();
  if (impl.stopped.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("Finish after Stop");
  }
  if (!impl.last) return absl::FailedPreconditionError("Finish before the first OnStep");
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto too_late = [&] {
    return absl::DeadlineExceededError(internal::StrCat(
        impl.core->board->slices().status().under_way() ? "the slice through step "
                                                        : "the snapshot of step ",
        impl.last->step, " was not measured within ",
        std::chrono::duration<double>(timeout).count(), " s; the monitor goes on working"));
  };
  if (impl.last_taken_step != impl.last->step) {
    if (!impl.core->WaitFor(/*idle=*/false, impl.taken, deadline)) return too_late();
    const internal::FillOutcome outcome = impl.Take(SnapshotTrigger::kFinish);
    if (outcome.result != SnapshotResult::kTaken) {
      return absl::FailedPreconditionError(internal::StrCat(
          "no snapshot of the last step: ", ToString(outcome.result), ": ", outcome.problem));
    }
  }
  if (!impl.core->WaitFor(/*idle=*/true, impl.taken, deadline)) return too_late();
  return absl::OkStatus();
}

absl::Status Monitor::Stop(std::chrono::milliseconds deadline) {
  deadline = std::min(deadline, kLongest);
  Impl& impl = *impl_;
  if (impl.core == nullptr || impl.stopped.exchange(true)) return absl::OkStatus();
  internal::MonitorCore& core = *impl.core;
  const auto end = std::chrono::steady_clock::now() + deadline;
  core.cancel.Cancel();
  core.board->slices().Close("the monitor was stopped");
  // A share of the deadline is kept for the exporters.
  const bool ended = impl.worker->Stop(deadline * 4 / 5);
  core.board->SetHealth(Health::kStopped);
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  core.publisher->Stop(std::max(left, std::chrono::milliseconds(100)), /*destroy=*/!ended);
  if (ended) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the losses closure did not return in time; the monitor thread is left behind and ends when "
      "it does");
}

std::string Monitor::Describe() const {
  if (impl_->core == nullptr) return "disabled by PTQWATCH_DISABLE\n";
  return impl_->core->description;
}

MonitorStatus Monitor::status() const {
  return impl_->core == nullptr ? MonitorStatus{} : impl_->core->publisher->status();
}

std::shared_ptr<const AnalyzedReport> Monitor::latest() const {
  return impl_->core == nullptr ? nullptr : impl_->core->publisher->latest();
}

Control& Monitor::control() {
  static internal::ControlInbox* inert = new internal::ControlInbox(1);
  return impl_->core == nullptr ? *inert : impl_->core->inbox;
}

}  // namespace ptqwatch
