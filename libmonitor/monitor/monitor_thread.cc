#include "monitor/monitor_thread.h"

#include <utility>
#include <variant>
#include <vector>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "monitor/compute_thread.h"
#include "probes/probe_state_file.h"

namespace ptqwatch::internal {
namespace {

// One call for each alternative of a variant.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

void MonitorThread::Enter() {
  InitComputeThread();
  parts_.suite->session().stream()->EnterMonitorThread();
}

void MonitorThread::Run() noexcept {
  const absl::Status before = Guard([&] {
    CarryOutCommands();
    AnnounceSkips();
    return absl::OkStatus();
  });
  if (!before.ok()) Log(Severity::kError, "commands or skipped snapshots were lost");
  const Snapshot* filled = parts_.staging->BeginLoading();
  if (filled == nullptr) return;
  parts_.board->SetBusy(true);
  loading_ = true;
  ++measuring_;
  const absl::Status status = Guard([&] {
    MeasureSnapshot(*filled);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    Log(Severity::kError, "a snapshot was lost to an exception outside of the probes");
  }
  ReleaseSlot();
  parts_.board->SetBusy(false);
  MutexLock lock(mutex_);
  ++done_;
  changed_.SignalAll();
}

void MonitorThread::CarryOutCommands() {
  TrainerSwitches& switches = *parts_.switches;
  for (const Command& command : parts_.control->Drain()) {
    std::visit(Overloaded{[&](TakeSnapshot) { ++switches.requests; },
                          [&](SetPaused set) { switches.paused = set.paused; },
                          [&](SetInterval set) { switches.every = set.every; },
                          [&](const MakeSlice& make) { slice_ = make.slice; }},
               command);
  }
}

void MonitorThread::AnnounceSkips() {
  const MonitorStatus status = parts_.publisher->status();
  int64_t skips = 0;
  for (SnapshotResult result :
       {SnapshotResult::kSkippedBusy, SnapshotResult::kSkippedMismatch, SnapshotResult::kFailed}) {
    skips += status.snapshots[static_cast<size_t>(result)];
  }
  if (skips <= skips_announced_) return;
  PublishEvent(Event::Kind::kSnapshotSkipped, Severity::kWarning, status.step.value_or(0),
               StrCat(skips - skips_announced_, " due snapshots were not taken"));
  skips_announced_ = skips;
}

void MonitorThread::MeasureSnapshot(const Snapshot& filled) {
  parts_.context.pacer.Begin();
  // Before anything can fail: a report without its place in the run would cut the series.
  const RunInfo& run = parts_.publisher->run();
  ReportHeader header{.run_id = run.run_id,
                      .attempt = run.attempt,
                      .fingerprint = run.fingerprint,
                      .sequence = ++parts_.sequence,
                      .snapshot = filled.header,
                      .stall_seconds = filled.stall_seconds};
  const SnapshotPlace place{.run_id = run.run_id,
                            .fingerprint = run.fingerprint,
                            .sequence = header.sequence,
                            .step = filled.header.info.step,
                            .ordinal = measuring_};
  absl::StatusOr<Measured> measured = Guard([&] { return LoadAndMeasure(filled, place); });
  ReleaseSlot();
  if (parts_.context.cancel.cancelled()) return;
  if (!measured.ok()) measured = parts_.suite->NotMeasured(measured.status());

  auto analyzed = std::make_shared<AnalyzedReport>();
  header.probe_state_sequence = measured->probe_state_sequence;
  analyzed->report = AssembleReport(header, measured->results);
  NoteOutcomes(analyzed->report, *measured);
  NotePhase(analyzed->report);
  analyzed->verdict = parts_.analyzer.Add(analyzed->report);
  parts_.publisher->Publish(analyzed);
  parts_.board->OnReport();
  if (measured->next) {
    parts_.probe_state = *std::exchange(measured->next, std::nullopt);
    KeepProbeState();
  }
  CarryOutCommands();
  parts_.suite->MeasureAfterReport(place, *std::move(measured), slice_ ? &*slice_ : nullptr,
                                   {.announce =
                                        [&](Severity severity, std::string message) {
                                          PublishEvent(Event::Kind::kSlice, severity, place.step,
                                                       std::move(message));
                                        },
                                    .poll = [this] { CarryOutCommands(); }},
                                   parts_.context);
}

absl::StatusOr<Measured> MonitorThread::LoadAndMeasure(const Snapshot& filled,
                                                       const SnapshotPlace& place) {
  DeviceStream& stream = *parts_.suite->session().stream();
  stream.WaitForCopy();
  parts_.suite->Load(filled);
  stream.Drain();
  ReleaseSlot();
  PTQWATCH_ASSIGN_OR_RETURN(
      Measured measured,
      parts_.suite->Measure(place, parts_.probe_state, {.poll = [this] { CarryOutCommands(); }},
                            parts_.context));
  stream.Drain();
  return measured;
}

void MonitorThread::ReleaseSlot() {
  if (!std::exchange(loading_, false)) return;
  parts_.staging->Release();
  MutexLock lock(mutex_);
  changed_.SignalAll();
}

void MonitorThread::NoteOutcomes(const Report& report, const Measured& measured) {
  std::vector<ProbeOutcome> outcomes;
  for (const ProbeResult& result : measured.results) outcomes.push_back(result.outcome);
  const FailurePolicy::Decision decision = failures_.Note(outcomes);
  if (decision.idle) {
    // Copying the weights for nothing would only cost the trainer time.
    parts_.switches->idle = true;
    return;
  }
  parts_.board->SetHealth(decision.failure ? Health::kDegraded : Health::kOk);
  if (decision.failure) {
    parts_.board->OnProbeFailure();
    probe_failed_(Severity::kWarning, StrCat("step ", report.step, ": ", *decision.failure));
    PublishEvent(Event::Kind::kProbeFailed, Severity::kWarning, report.step, *decision.failure);
  }
  for (const FailurePolicy::SwitchedOff& off : decision.switched_off) {
    const std::string message =
        StrCat("the ", off.probe, " probe is switched off after ", off.failures,
               " failures in a row, the last one: ", off.detail);
    Log(Severity::kError, message);
    PublishEvent(Event::Kind::kProbeDisabled, Severity::kError, report.step, message);
    parts_.suite->Disable(off.probe,
                          StrCat("switched off after ", off.failures, " failures in a row"));
  }
}

void MonitorThread::NotePhase(const Report& report) {
  if (report.lr_phase == parts_.phase) return;
  PublishEvent(
      Event::Kind::kPhaseChange, Severity::kInfo, report.step,
      StrCat("learning-rate phase ", ToString(parts_.phase), " -> ", ToString(report.lr_phase)));
  parts_.phase = report.lr_phase;
}

void MonitorThread::KeepProbeState() {
  const RunInfo& run = parts_.publisher->run();
  if (run.run_dir.empty()) return;
  const absl::Status status =
      ProbeStateFile::Write(run.run_dir, run.run_id, run.fingerprint, parts_.probe_state);
  if (status.ok()) return;
  parts_.board->OnStateWriteFailure();
  state_failed_(Severity::kWarning, StrCat("the state of the probes was not kept: ", status));
}

void MonitorThread::PublishEvent(Event::Kind kind, Severity severity, int64_t step,
                                 std::string message) {
  parts_.publisher->PublishEvent(
      {kind, severity, step, parts_.context.clock->UnixSeconds(), std::move(message)});
}

bool MonitorThread::WaitUntilFree(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!parts_.staging->free()) {
    if (!changed_.WaitUntil(mutex_, deadline)) return parts_.staging->free();
  }
  return true;
}

bool MonitorThread::WaitUntilDone(int64_t snapshots,
                                  std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (done_ < snapshots) {
    if (!changed_.WaitUntil(mutex_, deadline)) return done_ >= snapshots;
  }
  return true;
}

}  // namespace ptqwatch::internal
