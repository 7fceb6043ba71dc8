#ifndef PTQWATCH_MONITOR_RUNNING_MONITOR_H_
#define PTQWATCH_MONITOR_RUNNING_MONITOR_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/process_end.h"
#include "base/worker.h"
#include "monitor/monitor_part.h"
#include "monitor/monitor_thread.h"
#include "monitor/run_core.h"
#include "monitor/trainer_side.h"
#include "ptqwatch/control.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/subject.h"
#include "staging/slot_filler.h"
#include "staging/worker_link.h"

namespace ptqwatch::internal {

/// A monitor that measures: the measuring half and, unless the trainer is another process, the
/// trainer's half. Monitor documents the members of the same name.
class RunningMonitor final : public MonitorPart {
 public:
  /// With `link`, the trainer is another process, which calls OnStep of a ProcessTrainer; `link`
  /// must then outlive this, apart from threads that Stop leaves behind.
  RunningMonitor(const MonitorOptions& options, std::unique_ptr<Subject> subject,
                 WorkerLink* link = nullptr);
  /// Requires Stop, or a Start that failed.
  ~RunningMonitor() override { core_->control.Close(); }

  /// Call it once, with the options of the constructor; defined in start_run.cc. Takes the
  /// exporters once all earlier steps succeeded.
  absl::Status Start(const MonitorOptions& options,
                     std::vector<std::unique_ptr<Exporter>>& exporters);

  void OnStep(const StepInfo& info) noexcept override {
    if (trainer_ && !stopped()) trainer_->OnStep(info);
  }
  void BeforeUpdate() noexcept override {
    if (trainer_ && !stopped()) trainer_->BeforeUpdate();
  }
  void BeginIdle() noexcept override { core_->budget->BeginFullSpeed(); }
  void EndIdle() noexcept override;
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) override;
  absl::Status Stop(std::chrono::milliseconds deadline) override;
  std::string Describe() const override { return description_; }
  MonitorStatus status() const override { return core_->publisher->status(); }
  std::shared_ptr<const AnalyzedReport> latest() const override {
    return core_->publisher->latest();
  }
  Control& control() override { return core_->control; }
  /// The server's CPU time is charged to the budget.
  void SetServer(const ServerStatus& server, pid_t process) override;
  void AnnounceServer(bool failed, const std::string& message) override;

 private:
  // Makes the slot: with the trainer's half that fills it, or in the memory that the link shares.
  absl::Status MakeSlot(const MonitorOptions& options);
  void ConnectLink();
  void Announce(Event::Kind kind, Severity severity, std::string message);
  void Wake() noexcept { worker_->Wake(); }
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  FillOutcome TakeLast(std::chrono::steady_clock::time_point deadline, const CancelToken& cancel);
  absl::Status FinishStep(std::chrono::milliseconds timeout, const CancelToken& cancel);
  absl::Status MeasureLastStep(int64_t last_step, std::chrono::milliseconds timeout,
                               const CancelToken& cancel);
  absl::Status StopOnce(std::chrono::steady_clock::time_point end);

  std::shared_ptr<RunCore> core_;
  std::shared_ptr<MonitorThread> thread_;
  WorkerLink* const link_;
  std::unique_ptr<SlotFiller> filler_;  // null with a link, as trainer_
  std::unique_ptr<TrainerSide> trainer_;
  std::unique_ptr<Worker> worker_;
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
