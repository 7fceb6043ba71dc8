#include "monitor/running_monitor.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/journal_writer.h"
#include "journal/run_endpoint.h"
#include "monitor/describe.h"
#include "monitor/monitor_parts.h"

namespace ptqwatch::internal {
namespace {

// milliseconds::max() would overflow the clock.
constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours(24 * 365);
// Of the process, which ends while the monitor lives.
constexpr std::chrono::seconds kTimeAtEnd{2};

// 0: the schedule is not by steps.
int64_t StepsApart(const ScheduleOptions& schedule) {
  return schedule.every_seconds > 0 || schedule.log_spaced_per_decade > 0 ? 0 : schedule.every;
}

void AnnounceResumption(const RunState& state, Clock& clock, Publisher& publisher) {
  if (state.attempt <= 1) return;
  const std::string message =
      StrCat("run ", state.run_id, " resumed, attempt ", state.attempt, ", after ",
             state.history.size(), " reports",
             state.unreadable_lines > 0
                 ? StrCat(" (", state.unreadable_lines, " unreadable lines skipped)")
                 : "");
  Log(Severity::kInfo, message);
  publisher.PublishEvent({Event::Kind::kResumed, Severity::kInfo, 0, clock.UnixSeconds(), message});
}

// Batches that were not evaluated, and probes that are off from the start: no later event tells.
void AnnounceLeftOut(ProbeSuite& suite, Clock& clock, Publisher& publisher) {
  const std::string& unchecked = suite.session().unchecked();
  if (!unchecked.empty()) {
    Log(Severity::kInfo, StrCat("not evaluated by Create for lack of time: ", unchecked));
  }
  for (const std::unique_ptr<Probe>& probe : suite.probes()) {
    if (probe->disabled().empty() || probe->after_report()) continue;  // those are asked for
    const std::string message = StrCat(probe->name(), " is not measured: ", probe->disabled());
    Log(Severity::kWarning, message);
    publisher.PublishEvent(
        {Event::Kind::kProbeDisabled, Severity::kWarning, 0, clock.UnixSeconds(), message});
  }
}

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(std::shared_ptr<MonitorThread> thread) {
  Worker::Hooks hooks;
  hooks.thread_init = [thread] { thread->Enter(); };
  hooks.job = [thread] { thread->Run(); };
  hooks.thread_end = [thread] { thread->Leave(); };
  return Worker::Start(std::move(hooks));
}

}  // namespace

RunningMonitor::RunningMonitor(const MonitorOptions& options, std::unique_ptr<Subject> subject)
    : clock_(options.clock),
      max_overhead_(options.max_overhead),
      max_stall_ratio_(options.duty_cycle ? 0 : options.max_overhead),
      subject_(std::move(subject)),
      schedule_(options.schedule),
      switches_(std::make_shared<TrainerSwitches>(StepsApart(schedule_))) {}

absl::Status RunningMonitor::Start(const MonitorOptions& options,
                                   std::vector<std::unique_ptr<Exporter>>& exporters) {
  // First of all: nothing may be written before the past of the run is known.
  PTQWATCH_ASSIGN_OR_RETURN(const RunState state, ResumeRun(options));
  context_.clock = clock_;
  context_.pacer = Pacer(1, clock_);
  context_.seeds = SeedSource(options.seed);
  context_.bytes = std::make_shared<ByteBudget>(options.max_bytes);
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::shared_ptr<ProbeSuite> suite,
      OpenSuite(*subject_, options, slices_.get(), cooldowns_.get(), context_));
  PTQWATCH_ASSIGN_OR_RETURN(const std::shared_ptr<Staging> staging,
                            MakeStaging(*suite, context_.bytes, options.copy_beside_training));
  const RunInfo run = MakeRunInfo(state, suite->session(), options);
  PTQWATCH_RETURN_IF_ERROR(CheckSameRun(state, run, options));
  board_->Resume(state.sequence);
  if (!state.history.empty() && state.history.back().report.fingerprint == run.fingerprint) {
    suite->cooldown()->Resume(state.history.back().report.predicted_end);
  }
  suite->session().ReleaseLiveTensors();
  const std::string& risk = suite->session().device().warning;
  if (!risk.empty()) Log(Severity::kWarning, StrCat("MonitorOptions.monitor_device: ", risk));

  const WorkBudget::Options budget = BudgetOptions(options, suite->session().device());
  Planner planner = MakePlanner(*suite, options, budget, KeptPlan(state, run.fingerprint));
  description_ = DescribeMonitor(*suite, *staging, planner, options, *context_.bytes);
  budget_ = std::make_shared<WorkBudget>(budget, std::move(planner), clock_, context_.pacer,
                                         switches_.get(), board_.get());

  PTQWATCH_RETURN_IF_ERROR(StartExporters(options, state, run, exporters));
  AnnounceLeftOut(*suite, *clock_, *publisher_);
  JudgedHistory past = Judge(state.history);
  MonitorThread::Parts parts{.subject = subject_,
                             .board = board_,
                             .switches = switches_,
                             .slices = slices_,
                             .cooldowns = cooldowns_,
                             .control = control_,
                             .staging = staging,
                             .suite = suite,
                             .publisher = publisher_,
                             .budget = budget_,
                             .context = context_,
                             .max_failures_in_a_row = options.max_failures_in_a_row,
                             .schedule = schedule_,
                             .training_threads = TrainingThreads(options),
                             .lock = state.lock,
                             .sequence = state.sequence,
                             .phases = std::make_shared<PhaseChanges>(state.lr.phase()),
                             .phase = state.lr.phase(),
                             .probe_state = ReadProbeState(state, run, *suite),
                             .analyzer = std::move(past.analyzer),
                             .last_state = past.state,
                             .on_alert = options.on_alert};
  PTQWATCH_RETURN_IF_ERROR(StartThread(std::move(parts), state.lr));
  at_end_.emplace([this] { Stop(kTimeAtEnd).IgnoreError(); });
  return absl::OkStatus();
}

absl::Status RunningMonitor::StartThread(MonitorThread::Parts parts, const LrTracker& lr) {
  const std::shared_ptr<Staging> staging = parts.staging;
  const std::shared_ptr<PhaseChanges> phases = parts.phases;
  board_->SetHealth(Health::kOk);  // before the thread may say otherwise
  thread_ = std::make_shared<MonitorThread>(std::move(parts));
  absl::StatusOr<std::unique_ptr<Worker>> started = StartWorker(thread_);
  if (!started.ok()) {
    publisher_->Stop(std::chrono::seconds(1));
    return started.status();
  }
  worker_ = *std::move(started);
  const auto wake = [this] { worker_->Wake(); };
  trainer_ = std::make_unique<TrainerSide>(TrainerSide::Parts{.clock = clock_,
                                                              .subject = subject_,
                                                              .staging = staging,
                                                              .board = board_,
                                                              .switches = switches_,
                                                              .schedule = schedule_,
                                                              .max_stall_ratio = max_stall_ratio_,
                                                              .lr = lr,
                                                              .phases = phases,
                                                              .wake = wake});
  control_->Open(wake);
  return absl::OkStatus();
}

absl::Status RunningMonitor::StartExporters(const MonitorOptions& options, const RunState& state,
                                            RunInfo run,
                                            std::vector<std::unique_ptr<Exporter>>& exporters) {
  if (!run.run_dir.empty()) {
    exporters.insert(exporters.begin(), MakeRunEndpoint(state.lock));
    exporters.insert(exporters.begin(), MakeJournalWriter());
  }
  publisher_ = std::make_shared<Publisher>(
      std::move(run), board_, clock_, std::move(exporters),
      // An exporter that Stop had to leave behind may still call these.
      [control = control_, from_outside = from_outside_, slices = slices_, cooldowns = cooldowns_,
       switches = switches_, bytes = context_.bytes,
       max_overhead = max_overhead_](MonitorStatus& status) {
        status.overhead_budget_ratio = max_overhead;
        status.memory_bytes = bytes->used();
        status.memory_peak_bytes = bytes->peak();
        status.memory_budget_bytes = bytes->limit();
        status.slice = slices->status();
        status.cooldown = cooldowns->status();
        status.every = switches->every;
        status.paused = switches->paused || switches->idle;
      });
  const size_t required = options.on_failure == OnFailure::kError ? SIZE_MAX : 0;
  PTQWATCH_RETURN_IF_ERROR(publisher_->Start(from_outside_.get(), required));
  AnnounceResumption(state, *clock_, *publisher_);
  return absl::OkStatus();
}

void RunningMonitor::EndIdle() noexcept {
  budget_->EndFullSpeed();
  // The monitor thread looks at whether it must rest.
  if (!stopped()) worker_->Wake();
}

absl::Status RunningMonitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (stopped()) return absl::FailedPreconditionError("Finish after Stop");
  if (!trainer_->last_step()) {
    return absl::FailedPreconditionError("Finish before the first OnStep");
  }
  timeout = std::min(timeout, kMaxTimeout);
  trainer_->BeforeUpdate();  // none follows
  thread_->BeginFinish(*trainer_->last_step(), timeout);
  const absl::Status status = MeasureLastStep(timeout, cancel);
  thread_->EndFinish();
  return status;
}

absl::Status RunningMonitor::MeasureLastStep(std::chrono::milliseconds timeout,
                                             const CancelToken& cancel) {
  TrainerSide& trainer = *trainer_;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto too_late = [&]() -> absl::Status {
    if (cancel.cancelled()) {
      return absl::CancelledError("Finish was cancelled; the monitor goes on working");
    }
    return absl::DeadlineExceededError(
        StrCat(slices_->status().under_way() ? "the slice through step " : "the snapshot of step ",
               *trainer.last_step(), " was not measured within ",
               std::chrono::duration<double>(timeout).count(), " s; the monitor goes on working"));
  };
  if (!trainer.last_step_taken()) {
    if (!thread_->WaitUntilFree(deadline, cancel)) return too_late();
    const FillOutcome outcome = trainer.TakeLast();
    if (outcome.result != SnapshotResult::kTaken) {
      return absl::FailedPreconditionError(StrCat(
          "no snapshot of the last step: ", ToString(outcome.result), ": ", outcome.problem));
    }
  }
  if (!thread_->WaitUntilDone(trainer.taken(), deadline, cancel)) return too_late();
  if (!thread_->WorthMeasuringAgain(*trainer.last_step())) return absl::OkStatus();
  // What cannot be measured again has its report.
  if (trainer.TakeLast().result == SnapshotResult::kTaken) {
    (void)thread_->WaitUntilDone(trainer.taken(), deadline, cancel);
  }
  return absl::OkStatus();
}

absl::Status RunningMonitor::Stop(std::chrono::milliseconds deadline) {
  deadline = std::min(deadline, kMaxTimeout);
  const auto end = std::chrono::steady_clock::now() + deadline;
  {
    MutexLock lock(stop_mutex_);
    if (stopped_.exchange(true)) {
      // Under way on this thread, or on one that waits for it.
      if (stopper_ == std::this_thread::get_id() || worker_->IsCurrentThread()) {
        return absl::OkStatus();
      }
      while (!stop_result_ && stop_ended_.WaitUntil(stop_mutex_, end)) {
      }
      return stop_result_.value_or(
          absl::DeadlineExceededError("another thread has not ended its Stop in time"));
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
  context_.cancel.Cancel();
  if (trainer_ != nullptr) trainer_->End();
  control_->Close();
  slices_->Close("the monitor was stopped");
  cooldowns_->Close("the monitor was stopped");
  // A share of the deadline is kept for the exporters.
  const bool ended = worker_->Stop(left() * 4 / 5);
  board_->SetHealth(Health::kStopped);
  const int64_t step = publisher_->status().step.value_or(0);
  const Event stopped{Event::Kind::kStopped, Severity::kInfo, step, clock_->UnixSeconds(),
                      StrCat("the monitor was stopped after step ", step)};
  publisher_->Stop(std::max(left(), std::chrono::milliseconds(100)), /*destroy=*/!ended, stopped);
  if (ended) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the losses closure did not return in time, or the disk of run_dir; the monitor thread is "
      "left behind and ends when they do");
}

}  // namespace ptqwatch::internal
