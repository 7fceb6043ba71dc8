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
#include "jobs/jobs.h"
#include "journal/run_lock.h"
#include "monitor/alert_notices.h"
#include "monitor/failure_policy.h"
#include "monitor/phase_notices.h"
#include "monitor/run_core.h"
#include "monitor/skip_notices.h"
#include "monitor/state_keeper.h"
#include "probes/assemble_report.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// What the monitor thread does: takes the filled snapshot, runs the probes, judges and publishes.
/// Shared-owned by the monitor and by its thread, which keeps all of this alive where a losses
/// closure does not return before Stop's deadline.
class MonitorThread {
 public:
  /// What the earlier attempts of the run left.
  struct Past {
    std::shared_ptr<RunLock> lock = {};  ///< of the run directory, to which states are written
    int64_t sequence = 0;
    LrPhase phase = LrPhase::kUnknown;
    ProbeState probe_state = {};
    Analyzer analyzer = Analyzer();
    VerdictState announced = VerdictState::kUnknown;
  };
  MonitorThread(std::shared_ptr<RunCore> core, const MonitorOptions& options, Past past);

  /// The thread itself, first and once: sets it up for measuring. Where that fails, nothing is
  /// measured and no snapshot is taken.
  void Enter() noexcept;
  /// The thread itself, at every wake: carries out commands, announces skipped snapshots, and
  /// measures the filled snapshot if there is one.
  void Run() noexcept;
  /// The thread itself, last and once: keeps what is not on the disk yet.
  void Leave() noexcept;

  /// The trainer's thread, which waits: from now on the monitor works at full speed. A snapshot
  /// before that of `last_step` ends after a quarter of `timeout`, that one shortly before its end;
  /// what a report then lacks has the status out_of_time.
  void BeginFinish(int64_t last_step, std::chrono::nanoseconds timeout);
  void EndFinish();
  /// The trainer's thread, while it finishes and the monitor thread does nothing: whether this step
  /// was measured with less than the time that is left allows.
  bool WorthMeasuringAgain(int64_t step);

  /// Any thread: waits until the staging slot is free. False once the deadline has passed or the
  /// wait was cancelled.
  bool WaitUntilFree(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel);
  /// Any thread: the same until so many snapshots are published or given up.
  bool WaitUntilDone(int64_t snapshots, std::chrono::steady_clock::time_point deadline,
                     const CancelToken& cancel);

 private:
  // Until when the snapshot of this step may be measured, while Finish waits.
  struct Finishing {
    int64_t last_step = 0;
    std::chrono::nanoseconds earlier{0};
    std::chrono::nanoseconds last{0};
    std::chrono::nanoseconds Until(int64_t step) const {
      return step == last_step ? last : earlier;
    }
  };

  double MonotonicSeconds() const;
  // Between two pieces of work: carries out commands, announces the phases of the learning rate and
  // mistakes in what OnStep gets.
  void Poll();
  PhaseNotices::Announce AnnouncePhase();
  // Measures nothing any more, and takes no snapshots.
  void GiveUp(const absl::Status& why, int64_t step) noexcept;
  void AnnounceSkips();
  void AnnounceMisuse();
  ExecutionContext BeginMeasuring(const Snapshot& filled);
  Plan NextPlan(const Snapshot& filled);
  // While Finish waits for the snapshot of this step.
  std::optional<double> SecondsToFinish(int64_t step);
  /// Between due snapshots while the learning rate does not decay; 0 while that is not known.
  double IntervalSeconds(const MonitorStatus& status) const;
  void AdaptPlan(const Plan& plan, const Measured& measured, int64_t step);
  void MeasureSnapshot(const Snapshot& filled);
  /// Sets `digest` once the snapshot is loaded.
  absl::StatusOr<Measured> LoadAndMeasure(const Snapshot& filled, const SnapshotPlace& place,
                                          std::string& digest, const ExecutionContext& context);
  // Shows the jobs the snapshot whose report is out.
  void BeginJobs(const SnapshotPlace& place, Measured& measured, const ExecutionContext& context);
  // Works at the jobs until a snapshot is there, nothing is left, or no core is spare any more.
  void WorkAtJobs() noexcept;
  JobCallbacks AnnounceJobs();
  void ReleaseSlot();
  /// False once the deadline has passed or the wait was cancelled.
  bool WaitForChange(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteOutcomes(const AnalyzedReport& analyzed, const Measured& measured);
  /// Tells when the parameters begin to stand still and when they change again.
  void NoteStandstill(const AnalyzedReport& analyzed);
  void PublishEvent(Event::Kind kind, Severity severity, int64_t step, std::string message);

  const std::shared_ptr<RunCore> core_;
  int64_t sequence_;  // of the newest report
  ProbeState probe_state_;
  Analyzer analyzer_;
  absl::Status set_up_;
  FailurePolicy failures_;
  int64_t measuring_ = 0;  // ordinal of the snapshot in work
  bool loading_ = false;   // the slot is not released yet
  SkipNotices skips_;
  PhaseNotices phases_;
  AlertNotices alerts_;
  bool standstill_ = false;  // has been told
  RateLimitedLog probe_failed_;
  StateKeeper states_;

  Mutex mutex_;
  CondVar changed_;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;  // snapshots published or given up
  std::optional<Finishing> finishing_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> step_in_work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MONITOR_THREAD_H_
