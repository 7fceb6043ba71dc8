#ifndef PTQWATCH_MONITOR_RUN_CORE_H_
#define PTQWATCH_MONITOR_RUN_CORE_H_

#include <memory>
#include <optional>

#include "budget/work_budget.h"
#include "handover/staging.h"
#include "jobs/jobs.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "publish/control_queue.h"
#include "publish/job_tracker.h"
#include "publish/limited_control.h"
#include "publish/publisher.h"
#include "publish/status_board.h"
#include "trainer/phase_changes.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// State shared by the threads of a monitor. Each thread shares ownership, so a thread that Stop
/// leaves behind, because a losses closure does not return, still has everything that it uses.
struct RunCore {
  /// `shared`: the switches, if they lie in memory that two processes share.
  RunCore(const MonitorOptions& options, std::unique_ptr<Subject> subject_in,
          TrainerSwitches* shared = nullptr);
  RunCore(const RunCore&) = delete;
  RunCore& operator=(const RunCore&) = delete;

  /// Adds the values that the board does not count. Any thread.
  void Complete(MonitorStatus& status) const;

  Clock* const clock;
  const bool several_ranks;  ///< others measure the same run (MonitorOptions::ranks)
  const ScheduleOptions schedule;
  const double max_overhead;
  /// Share of its time for which noticeable copies may hold training up; 0: no limit.
  const double max_stall_ratio;
  const int training_threads;  ///< threads that Finish may use
  const std::unique_ptr<Subject> subject;
  ExecutionContext context;  ///< for the monitor thread; its bytes are the measuring device's

  StatusBoard board;
  TrainerSwitches own_switches;
  TrainerSwitches& switches;
  JobTrackers trackers;
  ControlQueue control{&trackers, &board, &switches.idle};
  LimitedControl from_outside{&control, clock};

  // RunningMonitor::Start makes each of them once, before any thread reads it.
  std::unique_ptr<ProbeSuite> suite;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<Staging> staging;
  std::optional<WorkBudget> budget;
  std::optional<PhaseChanges> phases;
  std::unique_ptr<Publisher> publisher;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RUN_CORE_H_
