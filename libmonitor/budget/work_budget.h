#ifndef PTQWATCH_BUDGET_WORK_BUDGET_H_
#define PTQWATCH_BUDGET_WORK_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "base/cpu_reading.h"
#include "base/mutex.h"
#include "base/thread_priority.h"
#include "budget/planner.h"
#include "budget/spare_core.h"
#include "handover/step_times.h"
#include "handover/trainer_switches.h"
#include "ptqwatch/execution_context.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// A shorter delay of a step by a copy of the weights is not noticed.
constexpr double kNoticedStallSeconds = 0.05;

/// Decides how much the monitor may do: whether work may start and how fast it goes, and how much
/// of a snapshot is measured. Keeps account of the work done.
///
/// Training may lose `max_overhead` of its time. Credit grows at that rate, up to half a minute.
/// Charged are the losses of training: to copies that hold it up, to the monitor's work, and to the
/// CPU time of the server beside the run. A second of work is charged as follows:
///
/// - On a spare core (SpareCore): nothing, and the monitor works without pause. If training steps
///   measurably take longer meanwhile (shared caches and memory, hardware threads), that fraction.
/// - Without a spare core, or on a GPU that trains: one second, or more if steps show it. While it
///   measures a snapshot, the monitor then works a quarter of the time.
///
/// Without credit the monitor rests and due snapshots are skipped. Until a reading of the CPUs
/// shows whether a core is spare, the monitor works a quarter of the time. Nothing is charged until
/// then, at full speed (training waits or is over), or with a fixed duty cycle.
///
/// The Planner fits the Plan of each snapshot to the seconds that the budget leaves for it.
///
/// For the monitor thread, except where a member says otherwise. Times are in seconds.
class WorkBudget {
 public:
  struct Options {
    double max_overhead = 0.02;
    /// Share of the time to work, without rests and regardless of spare cores.
    std::optional<double> fixed_duty_cycle = {};
    SpareCore::Options cores = {};
    /// Relative snapshot density while the learning rate decays; above 1, additional snapshots are
    /// taken between due ones.
    double decay_density = 1;
    /// Time after which a snapshot is cut short.
    double longest_snapshot_seconds = std::numeric_limits<double>::infinity();
    /// The part of it that a plan may take on average: a snapshot with curvature takes up to 1.8
    /// times the mean, and other threads may take time from the core.
    double MeanSeconds() const { return longest_snapshot_seconds / 2; }
  };
  using ReadFunction = std::function<std::optional<CpuReading>()>;

  /// `pacer` belongs to the context that snapshots are measured with. All pointees must outlive
  /// this. Tests pass another `read`.
  WorkBudget(
      const Options& options, Planner planner, Clock* clock, Pacer pacer, TrainerSwitches* switches,
      StatusBoard* board, ReadFunction read = [] { return ReadCpu(); });

  /// Call it first on the monitor thread. `between` is called between small pieces of work and must
  /// not throw.
  void Enter(std::function<void()> between = [] {});

  enum class Task : uint8_t {
    kNone,
    kSnapshot,  ///< if work must be paid for, no snapshot is taken until its rest is over
    kJob        ///< can wait: snapshots are taken meanwhile and have half of the long-run share
  };
  /// Call them around each task. Begin returns false for a job if no core is spare: the job must
  /// not start.
  bool Begin(Task task);
  void End() { SetTask(Task::kNone); }
  /// Whether a job may go on.
  bool job_may_run() const {
    return cores_.spare() || full_speed() || options_.fixed_duty_cycle.has_value();
  }

  /// Any thread: full speed, free of charge, while training waits or is over. Every Begin needs an
  /// End. After the last End, Refresh on the monitor thread restores the rests.
  void BeginFullSpeed();
  void EndFullSpeed() { full_speed_.fetch_sub(1, std::memory_order_relaxed); }
  bool full_speed() const { return full_speed_.load(std::memory_order_relaxed) > 0; }
  void Refresh();

  bool spare() const { return cores_.spare(); }
  /// Whether rests must pay for work.
  bool rests() const { return charges() && UnfixedShare() < 1; }
  /// Share of the time, in (0, 1], to work while measuring a snapshot.
  double share() const;
  /// Share of the time, in (0, 1], that all work may take in the long run.
  double long_run_share() const;
  /// Seconds to rest before the next snapshot may be measured; 0: none.
  double RestSeconds() const;

  struct DueSnapshot {
    /// Seconds between due snapshots while the learning rate does not decay; 0 if unknown.
    double interval_seconds = 0;
    bool additional = false;  ///< taken only because the learning rate decays
    bool at_finish = false;   ///< the run's last
    /// Seconds until Finish stops waiting for this snapshot; nullopt if it does not wait.
    std::optional<double> seconds_to_finish = {};
    bool job_waits = false;  ///< work between snapshots also needs time
  };
  /// The plan of the next snapshot.
  Plan NextPlan(const DueSnapshot& due);
  Plan AdditionalPlan(double interval_seconds) const;
  /// The plan of a run's last snapshot if `seconds` are left; see Planner::Last.
  std::optional<Plan> LastPlan(double seconds) const {
    return planner_.Last(std::min(seconds, options_.longest_snapshot_seconds));
  }
  /// Tells OnStep how much time an additional snapshot needs.
  void OfferAdditional(double interval_seconds);
  const Planner& planner() const { return planner_; }

  /// Charges seconds that the thread or its device has worked.
  void Charge(double seconds) { ChargeLoss(LossPerSecond() * seconds); }
  /// Charges the time that a copy held training up, if noticeable.
  void ChargeCopy(double stall_seconds);
  /// Any thread: from now on charges the growth of `cpu_seconds`, the CPU time of the server beside
  /// the run. A restarted server begins at 0.
  void WatchServer(std::function<double()> cpu_seconds);
  /// Charges the time that training steps lost since the last call, if enough steps were timed.
  void ChargeSteps(const StepTimes& times);
  void ChargeSteps(const StepComparison& comparison);
  /// Learns the cost of a snapshot. Returns what changed in the plan and why, if it changed.
  std::optional<std::string> Learn(const SnapshotWork& work, double interval_seconds);

 private:
  double Now() const;
  double CreditNow() const;
  bool charges() const { return cores_.known() && !full_speed() && !options_.fixed_duty_cycle; }
  void ChargeLoss(double seconds);
  void ReadMachine();
  double LossPerSecond() const;
  double UnfixedShare() const;
  double SecondsForSnapshot(double interval_seconds) const;
  ThreadPriority Priority() const;
  void SetTask(Task task);

  const Options options_;
  Clock* const clock_;
  const Pacer pacer_;
  TrainerSwitches* const switches_;
  StatusBoard* const board_;
  const ReadFunction read_;
  const bool may_idle_;  // whether the thread can leave idle priority
  Planner planner_;
  SpareCore cores_;
  Slowdown slowdown_;       // of work on a spare core
  Slowdown busy_slowdown_;  // of work without a spare core
  double credit_ = 0;       // seconds that training may lose; if negative, rests repay it
  double credited_;         // time up to which credit_ has grown
  double next_reading_ = 0;
  Task task_ = Task::kNone;
  double server_seconds_ = 0;  // CPU seconds already charged
  std::atomic<int> full_speed_{0};
  Mutex server_mutex_;
  std::function<double()> server_cpu_ ABSL_GUARDED_BY(server_mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BUDGET_WORK_BUDGET_H_
