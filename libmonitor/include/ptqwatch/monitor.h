#ifndef PTQWATCH_MONITOR_H_
#define PTQWATCH_MONITOR_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch {

class Subject;

/// Watches one model. The training run is not changed by one bit: the live model is only read,
/// inside OnStep and Finish, and no process-global state is touched. After Create nothing throws or
/// aborts. What goes wrong becomes a status in a report, an Event, a counter and a message to the
/// log sink.
class Monitor {
 public:
  /// Reads the run directory, builds the replica, checks the losses closure, plans which layers are
  /// quantized, and starts the exporters and the monitor thread.
  ///
  /// Cost: a few forward passes, and some gradients where curvature is on; memory for twice the
  /// model and one staging copy.
  ///
  /// Every mistake is found here: InvalidArgument names the option and its value,
  /// FailedPrecondition says what about the model or the closure does not fit, ResourceExhausted
  /// that memory ran out. With PTQWATCH_DISABLE=1 in the environment the monitor is inert and
  /// `subject` is not looked at.
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options = {},
      std::vector<std::unique_ptr<Exporter>> exporters = {});

  /// Stop(2 s).
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Call after each optimizer step, from any thread, one caller at a time. O(1), no allocation and
  /// no lock where no snapshot is due; a copy of the weights where one is. Does nothing on a
  /// monitor that is stopped or disabled.
  void OnStep(const StepInfo& info) noexcept;

  /// While one lives, the trainer says that it does not train: it evaluates, writes a checkpoint or
  /// waits for data. The monitor then works at full speed, and that work counts as none of its
  /// share. Must not outlive the monitor.
  class IdleScope {
   public:
    IdleScope(IdleScope&& other) noexcept;
    IdleScope& operator=(IdleScope&&) = delete;
    ~IdleScope();

   private:
    friend class Monitor;
    explicit IdleScope(Monitor* monitor) : monitor_(monitor) {}
    Monitor* monitor_;  // null: moved from
  };
  /// Any thread; several may be alive.
  [[nodiscard]] IdleScope Idle() noexcept;

  /// Call on the trainer's thread when training is over. Takes a snapshot of the last step, unless
  /// that step has one, and waits until everything pending is measured and published. The monitor
  /// works at full speed meanwhile. A snapshot before the last one may take a quarter of `timeout`;
  /// what is not measured in time has the status out_of_time in its report. Exporters go on
  /// serving.
  ///
  /// DeadlineExceeded if the losses closure or a slice under way does not end within `timeout`, and
  /// Cancelled soon after `cancel` was; in both cases the work goes on. FailedPrecondition before
  /// the first OnStep and after Stop.
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel = {});

  /// Cancels what is being measured, and stops the monitor thread and the exporters. Idempotent.
  /// DeadlineExceeded if the losses closure does not return in time: the thread is then left behind
  /// and touches nothing but that closure.
  absl::Status Stop(std::chrono::milliseconds deadline);

  /// What will be measured, as text: layers covered and skipped with the reason, bytes, and the
  /// plan with its estimated seconds of work.
  std::string Describe() const;

  /// Counters and gauges as they are now. Thread-safe.
  MonitorStatus status() const;
  /// The newest report, or null. Thread-safe.
  std::shared_ptr<const AnalyzedReport> latest() const;
  /// Commands to this monitor. Thread-safe; lives as long as the monitor. A disabled monitor
  /// ignores them.
  Control& control();

 private:
  struct Running;
  explicit Monitor(std::unique_ptr<Running> running);
  absl::Status MeasureLastStep(std::chrono::milliseconds timeout, const CancelToken& cancel);
  std::unique_ptr<Running> running_;  // null: disabled
};

}  // namespace ptqwatch

#endif  // PTQWATCH_MONITOR_H_
