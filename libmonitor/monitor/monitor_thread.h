#ifndef PTQWATCH_MONITOR_MONITOR_THREAD_H_
#define PTQWATCH_MONITOR_MONITOR_THREAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "analysis/analyzer.h"
#include "base/log.h"
#include "base/mutex.h"
#include "budget/grid_stretch.h"
#include "jobs/jobs.h"
#include "journal/run_lock.h"
#include "monitor/run_core.h"
#include "monitor/state_keeper.h"
#include "notices/alert_notices.h"
#include "notices/failure_policy.h"
#include "notices/phase_notices.h"
#include "notices/skip_notices.h"
#include "probes/assemble_report.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// The work of the monitor thread: takes the filled snapshot, runs the probes, analyzes and
/// publishes. The monitor and its thread share ownership, so that this outlives a losses closure
/// that does not return before Stop's deadline.
class MonitorThread {
 public:
  /// State left by earlier attempts of the run.
  struct Past {
    std::shared_ptr<RunLock> lock = {};  ///< of the run directory, where states are written
    int64_t sequence = 0;
    LrPhase phase = LrPhase::kUnknown;
    ProbeState probe_state = {};
    Analyzer analyzer = Analyzer();
    VerdictState announced = VerdictState::kUnknown;
  };
  MonitorThread(std::shared_ptr<RunCore> core, const MonitorOptions& options, Past past);

  /// On the thread itself, first and once: sets it up for measuring. If that fails, no snapshot is
  /// taken and nothing is measured.
  void Enter() noexcept;
  /// On the thread itself, at every wake-up: carries out commands, announces skipped snapshots, and
  /// measures the filled snapshot, if any.
  void Run() noexcept;
  /// On the thread itself, last and once: writes the state that is not on disk yet.
  void Leave() noexcept;

  /// Trainer's thread, which then waits: makes the monitor work at full speed. A snapshot older
  /// than the one of `last_step` gets a quarter of `timeout`; that of `last_step` ends shortly
  /// before the timeout. Parts of a report that do not fit get the status out_of_time.
  void BeginFinish(int64_t last_step, std::chrono::nanoseconds timeout);
  void EndFinish();
  /// Trainer's thread, during Finish, while the monitor thread is idle: whether the remaining time
  /// allows a larger plan than this step was measured with.
  bool WorthMeasuringAgain(int64_t step);

  /// Any thread: waits until the staging slot is free. False once the deadline has passed or the
  /// wait is cancelled.
  bool WaitUntilFree(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel);
  /// Any thread: waits likewise until the snapshot of this number is published or given up.
  bool WaitUntilDone(int64_t snapshot, std::chrono::steady_clock::time_point deadline,
                     const CancelToken& cancel);

 private:
  // Times until which snapshots may be measured while Finish waits.
  struct Finishing {
    int64_t last_step = 0;
    std::chrono::nanoseconds earlier{0};
    std::chrono::nanoseconds last{0};
    std::chrono::nanoseconds Until(int64_t step) const {
      return step == last_step ? last : earlier;
    }
  };

  // Between two pieces of work: carries out commands, and announces learning-rate phases and
  // mistakes in the arguments of OnStep.
  void Poll();
  PhaseNotices::Announce AnnouncePhase();
  // Stops measuring and taking snapshots for good.
  void GiveUp(const absl::Status& why, int64_t step) noexcept;
  void AnnounceSkips();
  void AnnounceMisuse();
  ExecutionContext BeginMeasuring(const Snapshot& filled);
  Plan NextPlan(const Snapshot& filled);
  // Seconds left to Finish, if it waits for the snapshot of this step.
  std::optional<double> SecondsToFinish(int64_t step);
  /// Seconds between due snapshots while the learning rate does not decay; 0 if unknown.
  double IntervalSeconds(const MonitorStatus& status) const;
  void AdaptPlan(const Plan& plan, const Measured& measured, int64_t step);
  void StretchGrid(const Measured& measured, int64_t step);
  void MeasureSnapshot(const Snapshot& filled);
  /// Sets the digests of `header` once the snapshot is loaded.
  absl::StatusOr<Measured> LoadAndMeasure(const Snapshot& filled, const SnapshotPlace& place,
                                          ReportHeader& header, const ExecutionContext& context);
  // Passes the published snapshot to the jobs.
  void BeginJobs(const SnapshotPlace& place, Measured& measured, const ExecutionContext& context);
  // Works on the jobs until a snapshot comes, nothing is left, or no core is spare.
  void WorkAtJobs() noexcept;
  JobCallbacks AnnounceJobs();
  void ReleaseSlot();
  /// False once the deadline has passed or the wait is cancelled.
  bool WaitForChange(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteOutcomes(const AnalyzedReport& analyzed, const Measured& measured);
  /// Announces when the parameters stop changing and when they change again.
  void NoteStandstill(const AnalyzedReport& analyzed);
  void PublishEvent(Event::Kind kind, Severity severity, int64_t step, std::string message);

  const std::shared_ptr<RunCore> core_;
  const std::optional<int64_t> rank_;
  const std::optional<int64_t> ranks_;
  int64_t sequence_;  // of the newest report
  ProbeState probe_state_;
  Analyzer analyzer_;
  absl::Status set_up_;
  FailurePolicy failures_;
  int64_t measured_ = 0;  // snapshots, the current one included
  bool loading_ = false;  // the slot is not released yet
  SkipNotices skips_;
  PhaseNotices phases_;
  AlertNotices alerts_;
  bool standstill_ = false;  // has been announced
  RateLimitedLog probe_failed_;
  StateKeeper states_;
  GridStretch grid_;

  Mutex mutex_;
  CondVar changed_;
  int64_t done_ ABSL_GUARDED_BY(mutex_);  // number of the newest snapshot published or given up
  std::optional<Finishing> finishing_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> step_in_work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MONITOR_THREAD_H_
