#ifndef PTQWATCH_MONITOR_RUNNING_MONITOR_H_
#define PTQWATCH_MONITOR_RUNNING_MONITOR_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/worker.h"
#include "monitor/control_queue.h"
#include "monitor/limited_control.h"
#include "monitor/monitor_thread.h"
#include "monitor/publisher.h"
#include "monitor/run_state.h"
#include "monitor/status_board.h"
#include "monitor/trainer_side.h"
#include "monitor/work_budget.h"
#include "probes/slice_tracker.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"
#include "trainer/trainer_switches.h"

namespace ptqwatch::internal {

/// A monitor that measures: the trainer's side, the monitor thread's, and what they share. Behind
/// Monitor, whose comments hold for the members of the same name.
class RunningMonitor {
 public:
  RunningMonitor(const MonitorOptions& options, std::unique_ptr<Subject> subject);
  /// After Stop, or a Start that failed.
  ~RunningMonitor() { control_->Close(); }

  /// Once. Takes the exporters only when all that comes before them is well. `options` have
  /// max_bytes.
  absl::Status Start(const MonitorOptions& options,
                     std::vector<std::unique_ptr<Exporter>>& exporters);

  void OnStep(const StepInfo& info) noexcept {
    if (!stopped()) trainer_->OnStep(info);
  }
  void BeforeUpdate() noexcept {
    if (!stopped()) trainer_->BeforeUpdate();
  }
  void BeginIdle() noexcept { budget_->BeginFullSpeed(); }
  void EndIdle() noexcept;
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel);
  absl::Status Stop(std::chrono::milliseconds deadline);
  const std::string& description() const { return description_; }
  Publisher& publisher() { return *publisher_; }
  Control& control() { return *control_; }

 private:
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  absl::Status StartExporters(const MonitorOptions& options, const RunState& state, RunInfo run,
                              std::vector<std::unique_ptr<Exporter>>& exporters);
  absl::Status StartThread(MonitorThread::Parts parts, const LrTracker& lr);
  absl::Status MeasureLastStep(std::chrono::milliseconds timeout, const CancelToken& cancel);
  absl::Status StopOnce(std::chrono::steady_clock::time_point end);

  Clock* const clock_;
  const double max_overhead_;
  const double max_stall_ratio_;
  const std::shared_ptr<Subject> subject_;
  const ScheduleOptions schedule_;
  const std::shared_ptr<StatusBoard> board_ = std::make_shared<StatusBoard>();
  const std::shared_ptr<TrainerSwitches> switches_;
  const std::shared_ptr<SliceTracker> slices_ = std::make_shared<SliceTracker>();
  const std::shared_ptr<CooldownTracker> cooldowns_ = std::make_shared<CooldownTracker>();
  const std::shared_ptr<ControlQueue> control_ = std::make_shared<ControlQueue>(
      slices_.get(), board_.get(), &switches_->idle, cooldowns_.get());
  const std::shared_ptr<LimitedControl> from_outside_ =
      std::make_shared<LimitedControl>(control_.get(), clock_);
  std::shared_ptr<Publisher> publisher_;
  std::shared_ptr<WorkBudget> budget_;
  std::shared_ptr<MonitorThread> thread_;
  std::unique_ptr<TrainerSide> trainer_;
  std::unique_ptr<Worker> worker_;
  ExecutionContext context_;
  std::string description_;
  std::atomic<bool> stopped_{false};
  Mutex stop_mutex_;
  CondVar stop_ended_;
  std::thread::id stopper_ ABSL_GUARDED_BY(stop_mutex_);
  std::optional<absl::Status> stop_result_ ABSL_GUARDED_BY(stop_mutex_);
  std::optional<AtProcessEnd> at_end_;  // last: may be calling Stop
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RUNNING_MONITOR_H_
