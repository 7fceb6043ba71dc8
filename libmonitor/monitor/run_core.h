#ifndef PTQWATCH_MONITOR_RUN_CORE_H_
#define PTQWATCH_MONITOR_RUN_CORE_H_

#include <memory>
#include <optional>

#include "jobs/job_tracker.h"
#include "jobs/jobs.h"
#include "monitor/control_queue.h"
#include "monitor/limited_control.h"
#include "monitor/publisher.h"
#include "monitor/status_board.h"
#include "monitor/work_budget.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/status.h"
#include "ptqwatch/subject.h"
#include "trainer/phase_changes.h"
#include "trainer/staging.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// Everything that the threads of a monitor share, in one object, which each of them keeps alive: a
/// thread that Stop has to leave behind, because a losses closure does not return, still has all
/// that it touches.
struct RunCore {
  /// `options` have max_bytes.
  RunCore(const MonitorOptions& options, std::unique_ptr<Subject> subject_in);
  RunCore(const RunCore&) = delete;
  RunCore& operator=(const RunCore&) = delete;

  /// Adds to a status what the board does not count. Any thread.
  void Complete(MonitorStatus& status) const;

  Clock* const clock;
  const ScheduleOptions schedule;
  const double max_overhead;
  /// Share of its time that training may be held up by copies that it notices; 0: any.
  const double max_stall_ratio;
  const int training_threads;  ///< that Finish may use
  const std::unique_ptr<Subject> subject;
  ExecutionContext context;  ///< the monitor thread's

  StatusBoard board;
  TrainerSwitches switches;
  JobTrackers trackers;
  ControlQueue control{&trackers, &board, &switches.idle};
  LimitedControl from_outside{&control, clock};

  // Made by RunningMonitor::Start, each once, before there is a thread that reads it.
  std::unique_ptr<ProbeSuite> suite;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<Staging> staging;
  std::optional<WorkBudget> budget;
  std::optional<PhaseChanges> phases;
  std::unique_ptr<Publisher> publisher;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RUN_CORE_H_
