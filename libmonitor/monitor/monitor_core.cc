#include "monitor/monitor_core.h"

#include <exception>
#include <string>
#include <utility>

#include "base/strings.h"
#include "c10/util/Exception.h"
#include "probes/probe_state_file.h"

namespace ptqwatch::internal {

void MonitorCore::PublishEvent(Event::Kind kind, Severity severity, int64_t step,
                               std::string message) {
  publisher->PublishEvent({kind, severity, step, options.clock->UnixSeconds(), std::move(message)});
}

void MonitorCore::RunPending() noexcept {
  try {
    AnnounceSkips();
  } catch (...) {
    Log(Severity::kError, "skipped snapshots could not be announced");
  }
  try {
    const Snapshot* filled = staging->BeginLoading();
    if (filled == nullptr) return;
    board->SetBusy(true);
    auto report = std::make_shared<AnalyzedReport>();
    bool loading = true;
    const auto release = [&] {
      if (!std::exchange(loading, false)) return;
      staging->Release();
      std::lock_guard<std::mutex> lock(mutex_);
      changed_.notify_all();
    };
    std::string problem;
    std::vector<std::vector<Replica::Override>> quantized;
    try {
      context.pacer.Begin();
      // Before anything can fail: a report without its place in the run would cut the series.
      FillHeader(*filled, report->report);
      stream->WaitForCopy();
      measurement->Load(*filled);
      stream->Drain();
      release();
      Measure(report->report, quantized);
      stream->Drain();
    } catch (const c10::Error& error) {
      problem = error.what_without_backtrace();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    release();
    if (!problem.empty()) {
      report->report.probe_status = ProbeStatus::kFailed;
      report->report.probe_status_detail = problem;
    }
    if (!cancel.cancelled()) {
      NoteOutcome(report->report);
      report->verdict = analyzer.Add(report->report);
      publisher->Publish(report);
      board->OnReport();
      if (probe_state.sequence == report->report.sequence) KeepState();
      MakeSlice(report->report, std::move(quantized));
    }
  } catch (...) {
    Log(Severity::kError, "a snapshot was lost to an exception outside of the probes");
  }
  board->SetBusy(false);
  std::lock_guard<std::mutex> lock(mutex_);
  ++done_;
  changed_.notify_all();
}

void MonitorCore::AnnounceSkips() {
  const MonitorStatus status = publisher->status();
  int64_t skips = 0;
  for (SnapshotResult result :
       {SnapshotResult::kSkippedBusy, SnapshotResult::kSkippedMismatch, SnapshotResult::kFailed}) {
    skips += status.snapshots[static_cast<size_t>(result)];
  }
  if (skips <= skips_announced) return;
  PublishEvent(Event::Kind::kSnapshotSkipped, Severity::kWarning, status.step.value_or(0),
               StrCat(skips - skips_announced, " due snapshots were not taken"));
  skips_announced = skips;
}

void MonitorCore::FillHeader(const Snapshot& snapshot, Report& report) {
  const SnapshotHeader& header = snapshot.header;
  const RunInfo& run = publisher->run();
  report.run_id = run.run_id;
  report.attempt = run.attempt;
  report.fingerprint = run.fingerprint;
  report.sequence = ++sequence;
  report.step = header.info.step;
  report.snapshot_time_unix_seconds = header.unix_seconds;
  report.learning_rate = header.info.learning_rate;
  report.tokens = header.info.tokens;
  report.training_loss_nats = header.info.loss;
  report.trigger = header.trigger;
  report.lr_phase = header.lr.phase;
  report.lr_change_points = header.lr.Points();
  report.decay_onset_step = header.lr.decay_onset_step;
  report.rolled_back = header.lr.rolled_back;
  report.cost_seconds["stall"] = snapshot.stall_seconds;
}

void MonitorCore::Measure(Report& report, std::vector<std::vector<Replica::Override>>& quantized) {
  if (probe_disabled) {
    report.probe_status = ProbeStatus::kDisabled;
    report.probe_status_detail =
        StrCat("switched off after ", options.max_failures_in_a_row, " failures in a row");
    return;
  }
  // A cancelled measurement is not published; its report says so to whoever holds it.
  absl::StatusOr<ProbeState> next = measurement->Run(probe_state, report, &quantized, context);
  if (next.ok()) probe_state = *std::move(next);
}

void MonitorCore::MakeSlice(const Report& report,
                            std::vector<std::vector<Replica::Override>> quantized) {
  if (probe_disabled) board->slices().Close("the probe is switched off");
  // done_ is written by this thread alone: read without the lock.
  slice->Run(
      report, done_ + 1, std::move(quantized),
      [&](Severity severity, std::string message) {
        PublishEvent(Event::Kind::kSlice, severity, report.step, std::move(message));
      },
      context);
}

void MonitorCore::KeepState() {
  const RunInfo& run = publisher->run();
  if (run.run_dir.empty()) return;
  const absl::Status status =
      ProbeStateFile::Write(run.run_dir, run.run_id, run.fingerprint, probe_state);
  if (status.ok()) return;
  board->OnStateWriteFailure();
  state_failed(Severity::kWarning,
               StrCat("the state of the probes was not kept: ", std::string(status.message())));
}

void MonitorCore::NoteFailure(const Report& report, const std::string& detail) {
  board->OnProbeFailure();
  board->SetHealth(Health::kDegraded);
  probe_failed(Severity::kWarning, StrCat("step ", report.step, ": ", detail));
  PublishEvent(Event::Kind::kProbeFailed, Severity::kWarning, report.step, detail);
}

bool MonitorCore::SwitchOff(std::string_view what, bool broken, int& in_a_row, const Report& report,
                            const std::string& detail) {
  in_a_row = broken ? in_a_row + 1 : 0;
  if (in_a_row < options.max_failures_in_a_row) return false;
  const std::string message = StrCat(what, " is switched off after ", in_a_row,
                                     " failures in a row, the last one: ", detail);
  Log(Severity::kError, message);
  PublishEvent(Event::Kind::kProbeDisabled, Severity::kError, report.step, message);
  return true;
}

void MonitorCore::NoteOutcome(const Report& report) {
  bool failed = report.probe_status != ProbeStatus::kOk;
  bool broken = report.probe_status == ProbeStatus::kFailed;
  std::string detail = report.probe_status_detail;
  for (const QuantizationReport& result : report.quantization) {
    broken |= result.status == ProbeStatus::kFailed;
    if (result.status == ProbeStatus::kOk || failed) continue;
    failed = true;
    detail = StrCat(ToString(result.method), " ", result.bits, "-bit: ", result.status_detail);
  }
  if (report.probe_status == ProbeStatus::kDisabled) {
    // Said once; copying the weights for nothing would only cost the trainer time.
    inbox.Pause();
  } else {
    board->SetHealth(Health::kOk);
    if (failed) NoteFailure(report, detail);
    if (SwitchOff("the probe", broken, failures_in_a_row, report, detail)) probe_disabled = true;
    NoteCurvature(report, failed);
  }
  if (report.lr_phase != last_phase) {
    PublishEvent(
        Event::Kind::kPhaseChange, Severity::kInfo, report.step,
        StrCat("learning-rate phase ", ToString(last_phase), " -> ", ToString(report.lr_phase)));
    last_phase = report.lr_phase;
  }
}

void MonitorCore::NoteCurvature(const Report& report, bool probe_failed_too) {
  if (!report.curvature || report.curvature->status == ProbeStatus::kDisabled) return;
  const CurvatureReport& curvature = *report.curvature;
  const std::string detail = StrCat("curvature: ", curvature.status_detail);
  // A model that is not finite has been spoken of already.
  if (curvature.status != ProbeStatus::kOk && !probe_failed_too) NoteFailure(report, detail);
  if (SwitchOff("the curvature probe", curvature.status == ProbeStatus::kFailed,
                curvature_failures_in_a_row, report, detail)) {
    measurement->curvature()->Disable(
        StrCat("switched off after ", curvature_failures_in_a_row, " failures in a row"));
  }
}

bool MonitorCore::WaitFor(bool idle, int64_t taken,
                          std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, deadline,
                             [&] { return idle ? done_ >= taken : staging->free(); });
}

}  // namespace ptqwatch::internal
