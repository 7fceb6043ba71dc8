#ifndef PTQWATCH_MONITOR_WORK_BUDGET_H_
#define PTQWATCH_MONITOR_WORK_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/cpu_reading.h"
#include "base/mutex.h"
#include "base/thread_priority.h"
#include "monitor/planner.h"
#include "monitor/spare_core.h"
#include "monitor/status_board.h"
#include "monitor/step_times.h"
#include "ptqwatch/execution_context.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// A copy of the weights that holds a step up for less is not noticed.
constexpr double kNoticedStallSeconds = 0.05;

/// How much the monitor may do: whether work may start now and how fast it goes, how much of a
/// snapshot is measured, and what was spent.
///
/// Training may lose `max_overhead` of its time. That much is credited as time passes, and charged
/// is what training loses: by copies that hold it up, by the monitor's work, and by the CPU time of
/// the server beside the run. A second of work costs training
///
/// - on a spare core (SpareCore) nothing, so the monitor works without pause; if the steps of
///   training are seen to take longer meanwhile (shared caches and memory, hardware threads), that
///   share of it;
/// - without a spare core, or on a GPU that trains, a second, or more if steps show it. The monitor
///   then works a quarter of the time while it measures a snapshot.
///
/// While credit is missing the monitor rests: snapshots that are due are skipped. At most half a
/// minute can be saved up. Until a reading of the CPUs tells whether a core is spare, the
/// monitor works a quarter of the time and nothing is charged.
///
/// At full speed (training waits, or is over) and with a fixed duty cycle nothing is charged
/// either.
///
/// How much of a snapshot is measured is a Plan, fitted by the Planner to the seconds that the
/// budget leaves for each.
///
/// For the monitor thread, except where a member says otherwise. Times are in seconds.
class WorkBudget {
 public:
  struct Options {
    double max_overhead = 0.02;
    /// Works this share of the time, whatever the machine has to spare, and never rests.
    std::optional<double> fixed_duty_cycle = {};
    SpareCore::Options cores = {};
    /// Additional snapshots fit between due ones while the learning rate decays: so many in all.
    double decay_density = 1;
  };
  using ReadFunction = std::function<std::optional<CpuReading>()>;

  /// `pacer` is the one of the context that snapshots are measured with. What the pointers point to
  /// must outlive this. Tests give another `read`.
  WorkBudget(
      const Options& options, Planner planner, Clock* clock, Pacer pacer, TrainerSwitches* switches,
      StatusBoard* board, ReadFunction read = [] { return ReadCpu(); });

  /// First thing on the monitor thread. `between` is called between small pieces of work and must
  /// not throw.
  void Enter(std::function<void()> between = [] {});

  enum class Task : uint8_t {
    kNone,
    kSnapshot,  ///< while credit can be missing, none is taken until the rest after it is over
    kJob        ///< can wait: snapshots are taken meanwhile, and half of the credit is theirs
  };
  /// Around each task. False for a job without a spare core: it may not start then.
  bool Begin(Task task);
  void End() { SetTask(Task::kNone); }
  /// Whether a job may go on.
  bool job_may_run() const {
    return cores_.spare() || full_speed() || options_.fixed_duty_cycle.has_value();
  }

  /// Any thread: full speed, free of charge, while training waits or is over. Each Begin is
  /// followed by an End; after the last one, Refresh on the monitor thread puts its rest into
  /// effect again.
  void BeginFullSpeed();
  void EndFullSpeed() { full_speed_.fetch_sub(1, std::memory_order_relaxed); }
  bool full_speed() const { return full_speed_.load(std::memory_order_relaxed) > 0; }
  void Refresh();

  bool spare() const { return cores_.spare(); }
  /// Whether work must be paid for by rests.
  bool rests() const { return charges() && UnfixedShare() < 1; }
  /// Share of the time, in (0, 1], to work while a snapshot is measured.
  double share() const;
  /// Share of the time, in (0, 1], that all work together may take in the long run.
  double long_run_share() const;
  /// Seconds of rest from now on before the next snapshot may be measured; 0: none.
  double RestSeconds() const;

  struct DueSnapshot {
    /// Between due snapshots while the learning rate does not decay; 0 while that is not known.
    double interval_seconds = 0;
    bool additional = false;  ///< taken only because the learning rate decays
    bool at_finish = false;   ///< the run's last
    /// Until Finish ends its wait for this snapshot; nothing while it does not wait.
    std::optional<double> seconds_to_finish = {};
    bool job_waits = false;  ///< work between snapshots needs time, too
  };
  /// What the next snapshot is measured with.
  Plan NextPlan(const DueSnapshot& due);
  Plan AdditionalPlan(double interval_seconds) const;
  /// Lets OnStep know how much time an additional snapshot needs.
  void OfferAdditional(double interval_seconds);
  const Planner& planner() const { return planner_; }

  /// Charges time that the thread, or its device, worked until now.
  void Charge(double seconds) { ChargeLoss(LossPerSecond() * seconds); }
  /// Charges what a copy held training up, if it was long enough to be noticed.
  void ChargeCopy(double stall_seconds);
  /// Any thread: from now on charges what `cpu_seconds` grows by, the CPU time of the server beside
  /// the run. Another server's begins at 0.
  void WatchServer(std::function<double()> cpu_seconds);
  /// Charges what steps of training lost since the last call, if enough were timed.
  void ChargeSteps(const StepTimes& times);
  void ChargeSteps(const StepComparison& comparison);
  /// Learns what a snapshot took. Returns what of the plan changed and why, if it had to.
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
  const bool may_idle_;  // the thread can come back from idle priority
  Planner planner_;
  SpareCore cores_;
  Slowdown slowdown_;       // by work on a spare core
  Slowdown busy_slowdown_;  // without one
  double credit_ = 0;       // seconds that training may lose; negative: to be paid for by rest
  double credited_;         // until when credit_ has grown
  double next_reading_ = 0;
  Task task_ = Task::kNone;
  double server_seconds_ = 0;  // of CPU time, charged
  std::atomic<int> full_speed_{0};
  Mutex server_mutex_;
  std::function<double()> server_cpu_ ABSL_GUARDED_BY(server_mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_WORK_BUDGET_H_
