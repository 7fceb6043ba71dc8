#include "ptqwatch/monitor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/worker.h"
#include "journal/journal_writer.h"
#include "monitor/describe.h"
#include "monitor/monitor_parts.h"
#include "monitor/monitor_thread.h"
#include "monitor/pace.h"
#include "monitor/run_state.h"
#include "monitor/trainer_side.h"

namespace ptqwatch {

namespace internal {
namespace {

// milliseconds::max() would overflow the clock.
constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours(24 * 365);

bool Disabled() {
  const char* value = std::getenv("PTQWATCH_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

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

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(std::shared_ptr<MonitorThread> thread) {
  Worker::Hooks hooks;
  hooks.thread_init = [thread] { thread->Enter(); };
  hooks.job = [thread] { thread->Run(); };
  return Worker::Start(std::move(hooks));
}

}  // namespace
}  // namespace internal

/// A monitor that is not disabled: both sides, and what they share.
struct Monitor::Running {
  Running(const MonitorOptions& options, std::unique_ptr<Subject> subject_in)
      : clock(options.clock),
        max_overhead(options.max_overhead),
        subject(std::move(subject_in)),
        schedule(options.schedule),
        switches(std::make_shared<internal::TrainerSwitches>(internal::StepsApart(schedule))) {}

  absl::Status Start(const MonitorOptions& options,
                     std::vector<std::unique_ptr<Exporter>> exporters);
  absl::Status StartExporters(const internal::RunState& state, RunInfo run,
                              std::vector<std::unique_ptr<Exporter>> exporters);
  absl::Status StartThread(internal::MonitorThread::Parts parts, const internal::LrTracker& lr);

  Clock* const clock;
  const double max_overhead;
  const std::shared_ptr<Subject> subject;
  const ScheduleOptions schedule;
  const std::shared_ptr<internal::StatusBoard> board = std::make_shared<internal::StatusBoard>();
  const std::shared_ptr<internal::TrainerSwitches> switches;
  const std::shared_ptr<internal::SliceTracker> slices = std::make_shared<internal::SliceTracker>();
  const std::shared_ptr<internal::ControlQueue> control =
      std::make_shared<internal::ControlQueue>(slices.get(), board.get());
  std::shared_ptr<internal::Publisher> publisher;
  std::shared_ptr<internal::Pace> pace;
  std::shared_ptr<internal::MonitorThread> thread;
  std::unique_ptr<internal::TrainerSide> trainer;
  std::unique_ptr<internal::Worker> worker;
  ExecutionContext context;
  std::string description;
  std::atomic<bool> stopped{false};
};

absl::Status Monitor::Running::Start(const MonitorOptions& options,
                                     std::vector<std::unique_ptr<Exporter>> exporters) {
  using namespace internal;
  // First of all: nothing may be written before the past of the run is known.
  PTQWATCH_ASSIGN_OR_RETURN(const RunState state, ResumeRun(options));
  context.clock = clock;
  context.pacer = Pacer(1, clock);
  context.seeds = SeedSource(options.seed);
  context.bytes = std::make_shared<ByteBudget>(options.max_bytes);
  PTQWATCH_ASSIGN_OR_RETURN(const std::shared_ptr<ProbeSuite> suite,
                            OpenSuite(*subject, options, slices.get(), context));
  PTQWATCH_ASSIGN_OR_RETURN(const std::shared_ptr<Staging> staging,
                            MakeStaging(*suite, context.bytes));
  const RunInfo run = MakeRunInfo(state, suite->session(), options);
  suite->session().ReleaseLiveTensors();

  const Governor::Options governor = GovernorOptions(options);
  Planner planner =
      MakePlanner(*suite, options, governor,
                  options.adapt_plan ? KeptPlan(state, run.fingerprint) : std::nullopt);
  description = DescribeMonitor(*suite, *staging, planner, options, *context.bytes);
  pace = std::make_shared<Pace>(governor, clock, context.pacer, switches, board);

  PTQWATCH_RETURN_IF_ERROR(StartExporters(state, run, std::move(exporters)));
  MonitorThread::Parts parts{.subject = subject,
                             .board = board,
                             .switches = switches,
                             .slices = slices,
                             .control = control,
                             .staging = staging,
                             .suite = suite,
                             .publisher = publisher,
                             .pace = pace,
                             .context = context,
                             .max_failures_in_a_row = options.max_failures_in_a_row,
                             .adapt_plan = options.adapt_plan,
                             .schedule = schedule,
                             .training_threads = TrainingThreads(options),
                             .sequence = state.sequence,
                             .phase = state.lr.phase(),
                             .probe_state = internal::ReadProbeState(state, run, *suite),
                             .analyzer = AnalyzerAfter(state.history),
                             .planner = std::move(planner)};
  return StartThread(std::move(parts), state.lr);
}

absl::Status Monitor::Running::StartThread(internal::MonitorThread::Parts parts,
                                           const internal::LrTracker& lr) {
  const std::shared_ptr<internal::Staging> staging = parts.staging;
  thread = std::make_shared<internal::MonitorThread>(std::move(parts));
  absl::StatusOr<std::unique_ptr<internal::Worker>> started = internal::StartWorker(thread);
  if (!started.ok()) {
    publisher->Stop(std::chrono::seconds(1));
    return started.status();
  }
  worker = *std::move(started);
  const auto wake = [this] { worker->Wake(); };
  trainer =
      std::make_unique<internal::TrainerSide>(internal::TrainerSide::Parts{.clock = clock,
                                                                           .subject = subject,
                                                                           .staging = staging,
                                                                           .board = board,
                                                                           .switches = switches,
                                                                           .schedule = schedule,
                                                                           .lr = lr,
                                                                           .wake = wake});
  control->Open(wake);
  board->SetHealth(Health::kOk);
  return absl::OkStatus();
}

absl::Status Monitor::Running::StartExporters(const internal::RunState& state, RunInfo run,
                                              std::vector<std::unique_ptr<Exporter>> exporters) {
  if (!run.run_dir.empty()) {
    exporters.insert(exporters.begin(), internal::MakeJournalWriter());
  }
  publisher = std::make_shared<internal::Publisher>(
      std::move(run), board, clock, std::move(exporters),
      [slices = slices, switches = switches, bytes = context.bytes,
       max_overhead = max_overhead](MonitorStatus& status) {
        status.overhead_budget_ratio = max_overhead;
        status.memory_bytes = bytes->used();
        status.memory_peak_bytes = bytes->peak();
        status.memory_budget_bytes = bytes->limit();
        status.slice = slices->status();
        status.every = switches->every;
        status.paused = switches->paused || switches->idle;
      });
  PTQWATCH_RETURN_IF_ERROR(publisher->Start(control.get()));
  internal::AnnounceResumption(state, *clock, *publisher);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Create(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters) {
  if (internal::Disabled()) return std::unique_ptr<Monitor>(new Monitor(nullptr));
  if (subject == nullptr) return absl::InvalidArgumentError("the subject is null");
  for (const auto& exporter : exporters) {
    if (exporter == nullptr) return absl::InvalidArgumentError("an exporter is null");
  }
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  options.max_bytes = internal::MaxBytes(options);
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<Monitor>> {
    auto running = std::make_unique<Running>(options, std::move(subject));
    PTQWATCH_RETURN_IF_ERROR(running->Start(options, std::move(exporters)));
    return std::unique_ptr<Monitor>(new Monitor(std::move(running)));
  });
}

Monitor::Monitor(std::unique_ptr<Running> running) : running_(std::move(running)) {}

Monitor::~Monitor() { Stop(std::chrono::seconds(2)).IgnoreError(); }

void Monitor::OnStep(const StepInfo& info) noexcept {
  if (running_ == nullptr || running_->stopped.load(std::memory_order_relaxed)) return;
  running_->trainer->OnStep(info);
}

Monitor::IdleScope Monitor::Idle() noexcept {
  if (running_ != nullptr) running_->pace->BeginUnhindered();
  return IdleScope(this);
}

Monitor::IdleScope::IdleScope(IdleScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)) {}

Monitor::IdleScope::~IdleScope() {
  if (monitor_ == nullptr || monitor_->running_ == nullptr) return;
  Running& running = *monitor_->running_;
  running.pace->EndUnhindered();
  // The monitor thread looks at whether it must rest.
  if (!running.stopped.load(std::memory_order_relaxed)) running.worker->Wake();
}

absl::Status Monitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (running_ == nullptr) return absl::OkStatus();
  if (running_->stopped.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("Finish after Stop");
  }
  internal::TrainerSide& trainer = *running_->trainer;
  if (!trainer.last_step()) {
    return absl::FailedPreconditionError("Finish before the first OnStep");
  }
  timeout = std::min(timeout, internal::kMaxTimeout);
  running_->thread->BeginFinish(*trainer.last_step(), timeout);
  const absl::Status status = MeasureLastStep(timeout, cancel);
  running_->thread->EndFinish();
  return status;
}

absl::Status Monitor::MeasureLastStep(std::chrono::milliseconds timeout,
                                      const CancelToken& cancel) {
  internal::TrainerSide& trainer = *running_->trainer;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto too_late = [&]() -> absl::Status {
    if (cancel.cancelled()) {
      return absl::CancelledError("Finish was cancelled; the monitor goes on working");
    }
    return absl::DeadlineExceededError(internal::StrCat(
        running_->slices->status().under_way() ? "the slice through step "
                                               : "the snapshot of step ",
        *trainer.last_step(), " was not measured within ",
        std::chrono::duration<double>(timeout).count(), " s; the monitor goes on working"));
  };
  if (!trainer.last_step_taken()) {
    if (!running_->thread->WaitUntilFree(deadline, cancel)) return too_late();
    const internal::FillOutcome outcome = trainer.TakeLast();
    if (outcome.result != SnapshotResult::kTaken) {
      return absl::FailedPreconditionError(internal::StrCat(
          "no snapshot of the last step: ", ToString(outcome.result), ": ", outcome.problem));
    }
  }
  if (!running_->thread->WaitUntilDone(trainer.taken(), deadline, cancel)) return too_late();
  return absl::OkStatus();
}

absl::Status Monitor::Stop(std::chrono::milliseconds deadline) {
  if (running_ == nullptr || running_->stopped.exchange(true)) return absl::OkStatus();
  deadline = std::min(deadline, internal::kMaxTimeout);
  const auto end = std::chrono::steady_clock::now() + deadline;
  running_->context.cancel.Cancel();
  running_->control->Close();
  running_->slices->Close("the monitor was stopped");
  // A share of the deadline is kept for the exporters.
  const bool ended = running_->worker->Stop(deadline * 4 / 5);
  running_->board->SetHealth(Health::kStopped);
  const int64_t step = running_->trainer->last_step().value_or(0);
  const Event stopped{Event::Kind::kStopped, Severity::kInfo, step, running_->clock->UnixSeconds(),
                      internal::StrCat("the monitor was stopped after step ", step)};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  running_->publisher->Stop(std::max(left, std::chrono::milliseconds(100)), /*destroy=*/!ended,
                            stopped);
  if (ended) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the losses closure did not return in time; the monitor thread is left behind and ends when "
      "it does");
}

std::string Monitor::Describe() const {
  if (running_ == nullptr) return "disabled by PTQWATCH_DISABLE\n";
  return running_->description;
}

MonitorStatus Monitor::status() const {
  return running_ == nullptr ? MonitorStatus{} : running_->publisher->status();
}

std::shared_ptr<const AnalyzedReport> Monitor::latest() const {
  return running_ == nullptr ? nullptr : running_->publisher->latest();
}

Control& Monitor::control() {
  static internal::ControlQueue* ignored = new internal::ControlQueue;
  return running_ == nullptr ? *ignored : *running_->control;
}

}  // namespace ptqwatch
