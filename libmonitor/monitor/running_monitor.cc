#include "monitor/running_monitor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/cpu_reading.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {

namespace {

// How long Finish lets other ranks copy a step that was due before it asks all of them to.
constexpr std::chrono::seconds kForOtherRanks{2};

std::shared_ptr<Page> MakePage(const TrainerOptions& options) {
  return std::make_shared<Page>(options.every(), options.stretch());
}

}  // namespace

RunningMonitor::RunningMonitor(const MonitorOptions& options, std::unique_ptr<Subject> subject,
                               WorkerLink* link)
    : core_(std::make_shared<RunCore>(
          options, std::move(subject),
          link == nullptr ? MakePage(TrainerOptions(options)) : link->page())),
      link_(link) {}

void RunningMonitor::ConnectLink() {
  link_->Connect(
      {.wake = [this] { Wake(); },
       .silence = [core =
                       core_] { return core->board.Silence(InSeconds(core->clock->Monotonic())); },
       .announce = [this](Event::Kind kind, Severity severity,
                          std::string message) { Announce(kind, severity, std::move(message)); },
       .set_server = [this](const ServerStatus& server,
                            pid_t process) { SetServer(server, process); }});
}

void RunningMonitor::SetServer(const ServerStatus& server, pid_t process) {
  core_->publisher->SetServer(server);
  core_->budget->WatchServer([process] { return CpuSecondsOf(process); });
}

void RunningMonitor::Announce(Event::Kind kind, Severity severity, std::string message) {
  const int64_t step = core_->publisher->status().step.value_or(0);
  core_->publisher->PublishEvent(
      {kind, severity, step, core_->clock->UnixSeconds(), std::move(message)});
}

void RunningMonitor::AnnounceServer(bool failed, const std::string& message) {
  Announce(Event::Kind::kServerFailed, failed ? Severity::kError : Severity::kInfo, message);
}

FillOutcome RunningMonitor::TakeLast(std::chrono::steady_clock::time_point deadline,
                                     const CancelToken& cancel) {
  return link_ == nullptr ? trainer_->TakeLast() : link_->TakeLast(deadline, cancel);
}

void RunningMonitor::EndIdle() noexcept {
  core_->budget->EndFullSpeed();
  // Makes the monitor thread check whether it must rest.
  if (!stopped()) Wake();
}

absl::Status RunningMonitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  // Now: the trainer may go on before this ends.
  const int64_t last_step = core_->page->board.step().value_or(SlotPage::kNoStep);
  const absl::Status status = FinishStep(timeout, cancel);
  if (link_ != nullptr) {
    const auto newest = latest();
    link_->TellFinished(last_step, status, newest == nullptr ? 0 : newest->report.sequence);
  }
  return status;
}

absl::Status RunningMonitor::FinishStep(std::chrono::milliseconds timeout,
                                        const CancelToken& cancel) {
  if (stopped()) return absl::FailedPreconditionError("Finish after Stop");
  const std::optional<int64_t> last_step = core_->page->board.step();
  if (!last_step) return absl::FailedPreconditionError("Finish before the first OnStep");
  if (trainer_) trainer_->BeforeUpdate();  // no update follows
  thread_->BeginFinish(*last_step, timeout);
  const absl::Status status = MeasureLastStep(*last_step, timeout, cancel);
  thread_->EndFinish();
  return status;
}

absl::Status RunningMonitor::MeasureLastStep(int64_t last_step, std::chrono::milliseconds timeout,
                                             const CancelToken& cancel) {
  const SlotPage& slot = core_->page->slot;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto too_late = [&]() -> absl::Status {
    if (cancel.cancelled()) {
      return absl::CancelledError("Finish was cancelled; the monitor goes on working");
    }
    return absl::DeadlineExceededError(
        StrCat(core_->trackers.slice.status().under_way() ? "the slice through step "
                                                          : "the snapshot of step ",
               last_step, " was not measured within ", InSeconds(timeout),
               " s; the monitor goes on working"));
  };
  // Whether the slot holds a snapshot that other ranks have not copied.
  const auto incomplete = [&] {
    return core_->slot->sharded() && slot.filled() && !link_->shards()->complete();
  };
  do {  // again if the snapshot turns out to be incomplete
    const auto patience = std::min(deadline, std::chrono::steady_clock::now() + kForOtherRanks);
    while (incomplete() && std::chrono::steady_clock::now() < patience && !cancel.cancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const bool lacks_ranks = incomplete();
    if (!slot.has_taken(last_step) || lacks_ranks) {
      if (!lacks_ranks && !thread_->WaitUntilFree(deadline, cancel)) return too_late();
      const FillOutcome outcome = TakeLast(deadline, cancel);
      if (outcome.result != SnapshotResult::kTaken) {
        return absl::FailedPreconditionError(StrCat(
            "no snapshot of the last step: ", ToString(outcome.result), ": ", outcome.problem));
      }
    }
    if (!thread_->WaitUntilDone(slot.newest(), deadline, cancel)) return too_late();
  } while (core_->slot->sharded() && !slot.has_taken(last_step));
  if (!thread_->WorthMeasuringAgain(last_step)) return absl::OkStatus();
  // If no second snapshot can be taken, the first report stands.
  if (TakeLast(deadline, cancel).result == SnapshotResult::kTaken) {
    (void)thread_->WaitUntilDone(slot.newest(), deadline, cancel);
  }
  return absl::OkStatus();
}

absl::Status RunningMonitor::Stop(std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  {
    MutexLock lock(stop_mutex_);
    if (stopped_.exchange(true)) {
      // Stop is under way on this thread, or on a thread that waits for it.
      if (stopper_ == std::this_thread::get_id() || worker_->IsCurrentThread()) {
        return absl::OkStatus();
      }
      while (!stop_result_ && stop_ended_.WaitUntil(stop_mutex_, end)) {
      }
      return stop_result_.value_or(
          absl::DeadlineExceededError("Stop on another thread did not end in time"));
    }
    stopper_ = std::this_thread::get_id();
  }
  const absl::Status status = StopOnce(end);
  MutexLock lock(stop_mutex_);
  stop_result_ = status;
  stop_ended_.SignalAll();
  return status;
}

absl::Status RunningMonitor::StopOnce(std::chrono::steady_clock::time_point end) {
  const auto left = [end] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end -
                                                                 std::chrono::steady_clock::now());
  };
  core_->context.cancel.Cancel();
  if (trainer_) trainer_->End();
  core_->control.Close();
  core_->trackers.Close("the monitor was stopped");
  // Leave a share of the deadline for the exporters.
  const bool ended = worker_->Stop(left() * 4 / 5);
  core_->board.SetHealth(Health::kStopped);
  const int64_t step = core_->publisher->status().step.value_or(0);
  const Event stopped{Event::Kind::kStopped, Severity::kInfo, step, core_->clock->UnixSeconds(),
                      StrCat("the monitor was stopped after step ", step)};
  core_->publisher->Stop(std::max(left(), std::chrono::milliseconds(100)), /*destroy=*/!ended,
                         stopped);
  if (ended) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the losses closure or the disk of run_dir did not return in time; the monitor thread is "
      "left behind and ends when it does");
}

}  // namespace ptqwatch::internal
