#include "monitor/monitor_thread.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/guard.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "monitor/compute_thread.h"
#include "snapshot/parameter_digest.h"

namespace ptqwatch::internal {
namespace {

// A wait notices cancellation within this time.
constexpr std::chrono::milliseconds kLongestWait{50};
// No snapshot is measured during a slice.
constexpr std::chrono::minutes kLongestSlice{30};

}  // namespace

MonitorThread::MonitorThread(std::shared_ptr<RunCore> core, const MonitorOptions& options,
                             Past past)
    : core_(std::move(core)),
      rank_(options.rank),
      ranks_(options.ranks),
      sequence_(past.sequence),
      probe_state_(std::move(past.probe_state)),
      analyzer_(std::move(past.analyzer)),
      failures_(options.max_failures_in_a_row),
      skips_(core_->schedule, core_->board.Read(0, 0)),
      phases_(&core_->page->board.phase_changes(), past.phase),
      alerts_(past.announced, options.on_alert, core_->context.cancel),
      states_({.run_dir = core_->publisher->run().run_dir,
               .run_id = core_->publisher->run().run_id,
               .fingerprint = core_->publisher->run().fingerprint,
               .lock = std::move(past.lock),
               .bytes = core_->context.host_bytes,
               .board = {core_, &core_->board},
               .clock = core_->clock}),
      grid_(GridStretch::Density(core_->schedule.decay_density)),
      done_(core_->page->slot.done()) {}

void MonitorThread::Enter() noexcept {
  set_up_ = Guard("the monitor thread could not be set up", absl::StatusCode::kInternal, [&] {
    InitComputeThread(core_->context.threads);
    core_->budget->Enter([this] {
      (void)Guard([&] {
        phases_.Poll(AnnouncePhase());
        return absl::OkStatus();
      });
    });
    const std::shared_ptr<DeviceStream> stream = core_->suite->session().stream();
    stream->EnterMonitorThread();
    core_->context.pacer.CountBy(
        [stream, clock = core_->clock] { return stream->WorkTime(*clock); });
    return absl::OkStatus();
  });
  // On the trainer's own stream, measuring would not be ordered with training.
  if (!set_up_.ok()) GiveUp(set_up_, /*step=*/0);
}

void MonitorThread::GiveUp(const absl::Status& why, int64_t step) noexcept {
  set_up_ = why;
  core_->page->switches.nothing_to_measure = true;
  (void)Guard([&] {
    const std::string message(Message(why));
    core_->board.SetHealth(Health::kDegraded, message);
    Log(Severity::kError, message);
    PublishEvent(Event::Kind::kProbeDisabled, Severity::kError, step, message);
    return absl::OkStatus();
  });
}

void MonitorThread::Run() noexcept {
  core_->budget->Refresh();
  const absl::Status before = Guard([&] {
    Poll();
    AnnounceSkips();
    return absl::OkStatus();
  });
  if (!before.ok()) Log(Severity::kError, "commands or skip notices were lost");
  const Snapshot* filled = core_->slot->BeginLoading();
  if (filled == nullptr) return WorkAtJobs();
  core_->board.SetBusy(true, InSeconds(core_->clock->Monotonic()));
  core_->page->switches.busy = true;
  loading_ = true;
  ++measured_;
  // Most static objects of the closure are made by the first snapshots.
  if ((measured_ & (measured_ - 1)) == 0) AtProcessEnd::Renew();
  const absl::Status status = Guard([&] {
    MeasureSnapshot(*filled);
    core_->budget->OfferAdditional(IntervalSeconds(core_->publisher->status()));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    Log(Severity::kError, "a snapshot was lost to an exception outside of the probes");
  }
  ReleaseSlot();
  core_->budget->ChargeSteps(core_->page->board.step_times());
  core_->budget->End();
  // A snapshot that Stop has interrupted is left to a successor.
  if (!core_->context.cancel.cancelled()) core_->slot->Done();
  core_->board.SetBusy(false, InSeconds(core_->clock->Monotonic()));
  core_->page->switches.busy = false;
  {
    MutexLock lock(mutex_);
    step_in_work_.reset();
    done_ = core_->page->slot.begun();
    changed_.SignalAll();
  }
  WorkAtJobs();
}

void MonitorThread::Leave() noexcept {
  // Queued device work uses memory that is freed soon.
  DrainQuietly(*core_->suite->session().stream());
  // On this thread, because freeing device memory waits for the device.
  (void)Guard([&] {
    core_->suite->session().ReleaseBackend();
    return absl::OkStatus();
  });
  (void)Guard([&] {
    states_.End();
    return absl::OkStatus();
  });
}

void MonitorThread::Poll() {
  core_->control.CarryOut(core_->page->switches);
  phases_.Poll(AnnouncePhase());
  AnnounceMisuse();
}

PhaseNotices::Announce MonitorThread::AnnouncePhase() {
  return [this](int64_t step, std::string message) {
    PublishEvent(Event::Kind::kPhaseChange, Severity::kInfo, step, std::move(message));
  };
}

void MonitorThread::AnnounceSkips() {
  const MonitorStatus status = core_->publisher->status();
  const WorkBudget& budget = *core_->budget;
  const double seconds = budget.planner().model().Mean(budget.planner().plan()) / budget.share();
  for (const auto& notice : {skips_.Rested(status, budget.spare(), budget.long_run_share()),
                             skips_.Skipped(status, seconds, IntervalSeconds(status))}) {
    if (!notice) continue;
    if (notice->first) Log(Severity::kWarning, notice->message);
    PublishEvent(Event::Kind::kSnapshotSkipped, Severity::kWarning, status.step.value_or(0),
                 notice->message);
  }
}

void MonitorThread::AnnounceMisuse() {
  for (StepMistake& mistake : core_->page->board.step_checks().Take()) {
    Log(Severity::kWarning, mistake.text);
    PublishEvent(Event::Kind::kMisuse, Severity::kWarning, mistake.step, std::move(mistake.text));
  }
}

ExecutionContext MonitorThread::BeginMeasuring(const Snapshot& filled) {
  core_->budget->ChargeCopy(filled.stall_seconds);
  core_->budget->Begin(WorkBudget::Task::kSnapshot);
  ExecutionContext context = core_->context;
  MutexLock lock(mutex_);
  if (finishing_) context.threads = std::max(context.threads, core_->training_threads);
  step_in_work_ = filled.header.info.step;
  context.hurry.Set(finishing_ ? finishing_->Until(*step_in_work_)
                               : std::chrono::nanoseconds::max());
  return context;
}

void MonitorThread::BeginFinish(int64_t last_step, std::chrono::nanoseconds timeout) {
  core_->budget->BeginFullSpeed();
  const std::chrono::nanoseconds now = core_->clock->Monotonic();
  std::optional<int64_t> in_work;
  {
    MutexLock lock(mutex_);
    finishing_ = Finishing{
        .last_step = last_step, .earlier = now + timeout / 4, .last = now + timeout / 10 * 9};
    in_work = step_in_work_;
    if (in_work) core_->context.hurry.Set(finishing_->Until(*in_work));
  }
  Log(Severity::kInfo,
      StrFormat("finishing: step %d is measured within %.0f s%s", last_step, InSeconds(timeout),
                in_work && *in_work != last_step ? StrCat(", after step ", *in_work) : ""));
}

void MonitorThread::EndFinish() {
  core_->budget->EndFullSpeed();
  MutexLock lock(mutex_);
  finishing_.reset();
  core_->context.hurry.Set(std::chrono::nanoseconds::max());
}

void MonitorThread::MeasureSnapshot(const Snapshot& filled) {
  const ExecutionContext context = BeginMeasuring(filled);
  // Before anything can fail: a report without its place in the run would break the series.
  const RunInfo& run = core_->publisher->run();
  ReportHeader header{.run_id = run.run_id,
                      .rank = rank_,
                      .ranks = ranks_,
                      .attempt = run.attempt,
                      .fingerprint = run.fingerprint,
                      .snapshot_dtype = core_->snapshot_dtype,
                      .bytes_per_token = core_->bytes_per_token,
                      .sequence = ++sequence_,
                      .snapshot = filled.header,
                      .stall_seconds = filled.stall_seconds};
  const SnapshotPlace place{.run_id = run.run_id,
                            .fingerprint = run.fingerprint,
                            .sequence = header.sequence,
                            .step = filled.header.info.step,
                            .ordinal = core_->page->slot.begun(),
                            .regular = IsRegular(filled.header),
                            .plan = NextPlan(filled),
                            .learning_rate = filled.header.info.learning_rate,
                            .lr_phase = filled.header.lr.phase};
  header.plan = place.plan;
  absl::StatusOr<Measured> measured =
      Guard([&] { return LoadAndMeasure(filled, place, header, context); });
  ReleaseSlot();
  if (core_->context.cancel.cancelled()) return;
  if (set_up_.ok()) {
    if (const absl::Status fault = core_->suite->session().stream()->Fault(); !fault.ok()) {
      GiveUp(fault, place.step);
    }
  }
  if (!measured.ok()) measured = core_->suite->NotMeasured(measured.status());

  auto analyzed = std::make_shared<AnalyzedReport>();
  header.probe_state_sequence = measured->probe_state_sequence;
  analyzed->report = AssembleReport(header, measured->results, core_->jobs->Results());
  analyzed->verdict = analyzer_.Add(analyzed->report);
  NoteOutcomes(*analyzed, *measured);
  phases_.BeforeReport(AnnouncePhase());
  core_->publisher->Publish(analyzed);
  core_->slot->Done();
  core_->board.OnReport(analyzed->report.sequence);
  NoteStandstill(*analyzed);
  alerts_.Note(*analyzed, [&](Severity severity, std::string message) {
    PublishEvent(Event::Kind::kAlert, severity, place.step, std::move(message));
  });
  AdaptPlan(*place.plan, *measured, place.step);
  if (measured->next) {
    probe_state_ = *std::exchange(measured->next, std::nullopt);
    states_.Offer(probe_state_,
                  /*now=*/header.snapshot.trigger == SnapshotTrigger::kFinish, context);
  }
  Poll();
  if (header.snapshot.trigger == SnapshotTrigger::kFinish) core_->jobs->EndTraining();
  BeginJobs(place, *measured, context);
}

JobCallbacks MonitorThread::AnnounceJobs() {
  return {.announce =
              [this](Event::Kind kind, Severity severity, int64_t step, std::string message) {
                if (severity != Severity::kInfo) Log(severity, message);
                PublishEvent(kind, severity, step, std::move(message));
              },
          .poll = [this] { Poll(); }};
}

void MonitorThread::BeginJobs(const SnapshotPlace& place, Measured& measured,
                              const ExecutionContext& context) {
  ExecutionContext unhurried = context.WithDeadline(core_->clock->Monotonic() + kLongestSlice);
  unhurried.hurry = SharedDeadline();
  const absl::Cleanup drain = [this] { DrainQuietly(*core_->suite->session().stream()); };
  core_->jobs->Begin(
      {.place = place, .results = absl::MakeSpan(measured.results), .callbacks = AnnounceJobs()},
      unhurried);
}

void MonitorThread::WorkAtJobs() noexcept {
  if (!core_->jobs->under_way()) return;
  const absl::Status worked = Guard([&] {
    if (!core_->budget->Begin(WorkBudget::Task::kJob)) {
      core_->jobs->WaitForCore(AnnounceJobs());
      return absl::OkStatus();
    }
    ExecutionContext context = core_->context;
    context.hurry = SharedDeadline();  // Finish does not wait for it
    core_->jobs->Advance(
        [this] {
          Poll();
          return core_->page->slot.filled() || !core_->budget->job_may_run();
        },
        AnnounceJobs(), context);
    DrainQuietly(*core_->suite->session().stream());
    core_->budget->End();
    return absl::OkStatus();
  });
  if (!worked.ok()) Log(Severity::kError, "work between snapshots was lost to an exception");
}

absl::StatusOr<Measured> MonitorThread::LoadAndMeasure(const Snapshot& filled,
                                                       const SnapshotPlace& place,
                                                       ReportHeader& header,
                                                       const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(set_up_);
  ModelSession& session = core_->suite->session();
  DeviceStream& stream = *session.stream();
  // Also after an exception, because queued device work reads memory that is freed next.
  const absl::Cleanup drain = [&stream] { DrainQuietly(stream); };
  // Later snapshots reuse the allocator's memory of the first.
  if (measured_ == 1) PTQWATCH_RETURN_IF_ERROR(session.CheckDeviceBytes(0, "a snapshot"));
  stream.WaitForCopy();
  core_->suite->Load(filled);
  stream.Drain();
  ReleaseSlot();
  PTQWATCH_ASSIGN_OR_RETURN(
      header.snapshot_digest,
      DigestOfParameters(session.replica(), context, ranks_ ? &header.parameter_digests : nullptr));
  PTQWATCH_ASSIGN_OR_RETURN(
      Measured measured,
      core_->suite->Measure(
          place, probe_state_,
          {.poll = [this] { Poll(); }, .keep_quantized = core_->jobs->want_quantized_weights()},
          context));
  stream.Drain();
  return measured;
}

void MonitorThread::ReleaseSlot() {
  if (!std::exchange(loading_, false)) return;
  core_->slot->Release();
  MutexLock lock(mutex_);
  changed_.SignalAll();
}

void MonitorThread::NoteOutcomes(const AnalyzedReport& analyzed, const Measured& measured) {
  const Report& report = analyzed.report;
  std::vector<ProbeOutcome> outcomes;
  for (const ProbeResult& result : measured.results) outcomes.push_back(result.outcome);
  const FailurePolicy::Decision decision = failures_.Note(outcomes);
  if (decision.nothing_to_measure) {
    // With every probe disabled, copies of the weights would only cost the trainer time.
    core_->page->switches.nothing_to_measure = true;
    return;
  }
  if (set_up_.ok()) {
    const bool still = analyzer_.still_since().has_value();
    core_->board.SetHealth(
        decision.failure || still ? Health::kDegraded : Health::kOk,
        decision.failure.value_or(still ? analyzed.verdict.summary : std::string()));
  }
  if (decision.failure) {
    core_->board.OnProbeFailure();
    probe_failed_(Severity::kWarning, StrCat("step ", report.step, ": ", *decision.failure));
    PublishEvent(Event::Kind::kProbeFailed, Severity::kWarning, report.step, *decision.failure);
  }
  for (const FailurePolicy::SwitchedOff& off : decision.switched_off) {
    const std::string message =
        StrCat("the ", off.probe, " probe is switched off after ", off.failures,
               " failures in a row, the last one: ", off.detail);
    Log(Severity::kError, message);
    PublishEvent(Event::Kind::kProbeDisabled, Severity::kError, report.step, message);
    core_->suite->Disable(off.probe,
                          StrCat("switched off after ", off.failures, " failures in a row"));
    core_->jobs->ProbeSwitchedOff(off.probe);
  }
}

void MonitorThread::NoteStandstill(const AnalyzedReport& analyzed) {
  const bool still = analyzer_.still_since().has_value();
  if (std::exchange(standstill_, still) == still) return;
  const Severity severity = still ? Severity::kWarning : Severity::kInfo;
  const std::string message =
      still ? analyzed.verdict.summary
            : StrCat("the parameters change again, at step ", analyzed.report.step);
  Log(severity, message);
  PublishEvent(Event::Kind::kMisuse, severity, analyzed.report.step, message);
}

void MonitorThread::PublishEvent(Event::Kind kind, Severity severity, int64_t step,
                                 std::string message) {
  core_->publisher->PublishEvent(
      {kind, severity, step, core_->clock->UnixSeconds(), std::move(message)});
}

bool MonitorThread::WaitUntilFree(std::chrono::steady_clock::time_point deadline,
                                  const CancelToken& cancel) {
  MutexLock lock(mutex_);
  while (!core_->page->slot.free()) {
    if (!WaitForChange(deadline, cancel)) return false;
  }
  return true;
}

bool MonitorThread::WaitUntilDone(int64_t snapshot, std::chrono::steady_clock::time_point deadline,
                                  const CancelToken& cancel) {
  MutexLock lock(mutex_);
  while (done_ < snapshot && core_->page->slot.dropped() < snapshot) {
    if (!WaitForChange(deadline, cancel)) return false;
  }
  return true;
}

bool MonitorThread::WaitForChange(std::chrono::steady_clock::time_point deadline,
                                  const CancelToken& cancel) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= deadline || cancel.cancelled()) return false;
  changed_.WaitUntil(mutex_, std::min(deadline, now + kLongestWait));
  return true;
}

}  // namespace ptqwatch::internal
