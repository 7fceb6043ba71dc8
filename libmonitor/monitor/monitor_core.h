#ifndef PTQWATCH_MONITOR_MONITOR_CORE_H_
#define PTQWATCH_MONITOR_MONITOR_CORE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/analyzer.h"
#include "base/log.h"
#include "monitor/control_inbox.h"
#include "monitor/publisher.h"
#include "monitor/status_board.h"
#include "probes/measurement.h"
#include "probes/slice_probe.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/subject.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// What the trainer's and the monitor thread share. Shared-owned by both: when a losses closure
/// does not return before Stop's deadline, the thread keeps it alive.
struct MonitorCore {
  MonitorCore(MonitorOptions options_in, std::unique_ptr<Subject> subject_in)
      : options(std::move(options_in)),
        subject(std::move(subject_in)),
        inbox(options.schedule.every, board.get()) {}

  // Fixed after Create.
  MonitorOptions options;
  std::unique_ptr<Subject> subject;
  std::shared_ptr<DeviceStream> stream;
  std::shared_ptr<StatusBoard> board = std::make_shared<StatusBoard>();
  std::unique_ptr<Staging> staging;
  std::unique_ptr<Measurement> measurement;
  std::unique_ptr<SliceProbe> slice;
  std::unique_ptr<Publisher> publisher;
  double duty_cycle = 1;
  std::string description;

  // Between the threads.
  ControlInbox inbox;
  CancelToken cancel;

  /// Monitor thread: measures, judges and publishes the filled snapshot, if there is one. Never
  /// throws.
  void RunPending() noexcept;
  /// Waits until the slot is free (`idle` false) or everything taken so far is published (`idle`
  /// true).
  bool WaitFor(bool idle, int64_t taken, std::chrono::steady_clock::time_point deadline);

  /// Monitor thread's own.
  ExecutionContext context;
  Analyzer analyzer;
  ProbeState probe_state;
  int64_t sequence = 0;
  int failures_in_a_row = 0;
  int curvature_failures_in_a_row = 0;
  bool probe_disabled = false;
  LrPhase last_phase = LrPhase::kUnknown;
  int64_t skips_announced = 0;
  RateLimitedLog probe_failed;
  RateLimitedLog state_failed;

 private:
  void FillHeader(const Snapshot& snapshot, Report& report);
  void Measure(Report& report, std::vector<std::vector<Replica::Override>>& quantized);
  void MakeSlice(const Report& report, std::vector<std::vector<Replica::Override>> quantized);
  /// For the next attempt of the run, where there is a run directory.
  void KeepState();
  void AnnounceSkips();
  void NoteOutcome(const Report& report);
  void NoteCurvature(const Report& report, bool probe_failed_too);
  void NoteFailure(const Report& report, const std::string& detail);
  /// Counts; true when `what` has now failed too often.
  bool SwitchOff(std::string_view what, bool broken, int& in_a_row, const Report& report,
                 const std::string& detail);
  void PublishEvent(Event::Kind kind, Severity severity, int64_t step, std::string message);

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t done_ = 0;  // snapshots published or given up
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MONITOR_CORE_H_
