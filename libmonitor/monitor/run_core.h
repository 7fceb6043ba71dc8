#ifndef PTQWATCH_MONITOR_RUN_CORE_H_
#define PTQWATCH_MONITOR_RUN_CORE_H_

#include <memory>
#include <optional>
#include <string>

#include "budget/work_budget.h"
#include "handover/page.h"
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
#include "staging/slot.h"

namespace ptqwatch::internal {

/// State shared by the threads of a monitor. Each thread shares ownership, so a thread that Stop
/// leaves behind, because a losses closure does not return, still has everything that it uses.
struct RunCore {
  RunCore(const MonitorOptions& options, std::unique_ptr<Subject> subject_in,
          std::shared_ptr<Page> page_in);
  RunCore(const RunCore&) = delete;
  RunCore& operator=(const RunCore&) = delete;

  /// Adds the values that the board does not count. Any thread.
  void Complete(MonitorStatus& status) const;

  Clock* const clock;
  const ScheduleOptions schedule;
  const double max_overhead;
  const int training_threads;                       ///< threads that Finish may use
  const std::optional<std::string> snapshot_dtype;  ///< as Report::snapshot_dtype
  const std::optional<double> bytes_per_token;      ///< as Report::bytes_per_token
  const std::unique_ptr<Subject> subject;
  ExecutionContext context;  ///< for the monitor thread; its bytes are the measuring device's

  const std::shared_ptr<Page> page;  ///< what the trainer's half shares
  StatusBoard board{&page->board};
  JobTrackers trackers;
  ControlQueue control{&trackers, &board, page.get()};
  LimitedControl from_outside{&control, clock};

  // RunningMonitor::Start makes each of them once, before any thread reads it.
  std::unique_ptr<ProbeSuite> suite;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<Slot> slot;
  std::optional<WorkBudget> budget;
  std::unique_ptr<Publisher> publisher;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RUN_CORE_H_
