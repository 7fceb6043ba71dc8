#ifndef PTQWATCH_MONITOR_H_
#define PTQWATCH_MONITOR_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/serve_options.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch {

class Subject;
namespace internal {
class InertMonitor;
class RunningMonitor;
}  // namespace internal

/// Watches one model. The training run is not changed by one bit: the live model is only read,
/// inside OnStep and Finish, and no process-global state is touched. After Create nothing throws or
/// aborts. What goes wrong becomes a status in a report, an Event, a counter and a message to the
/// log sink.
///
/// Where the process ends while a monitor lives, by exit() or by returning from main, it is stopped
/// (2 s) before the process's static objects are destroyed. In a child of fork() it does nothing,
/// and all that it holds is left as it is.
class PTQWATCH_EXPORT Monitor {
 public:
  /// Reads the run directory, builds the replica, checks the losses closure, plans which layers are
  /// quantized, and starts the exporters and the monitor thread.
  ///
  /// Cost: a few forward passes, one of every batch unless that takes more than 10 s, and some
  /// gradients where curvature is on; memory for twice the model and one staging copy.
  ///
  /// Random numbers of the training run stay what they would have been, also those that other
  /// threads draw meanwhile (docs/troubleshooting.md says what is not seen).
  ///
  /// Mistakes are found here: InvalidArgument names the option and its value, FailedPrecondition
  /// says what about the model, a batch or the closure does not fit, ResourceExhausted that memory
  /// ran out. Describe names the batches for which there was no time. What the trainer passes to
  /// OnStep is looked at there: Event::Kind::kMisuse. With MonitorOptions::on_failure = kInert, the
  /// default, that is no reason for training not to start: Create then returns an inert monitor,
  /// whose creation_status is the error, and leaves out exporters that cannot be started. With
  /// PTQWATCH_DISABLE=1 in the environment the monitor does nothing, either, and `subject` is not
  /// looked at.
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options = {},
      std::vector<std::unique_ptr<Exporter>> exporters = {});

  /// Ok where the monitor measures, or is disabled; otherwise why it is inert. Thread-safe.
  absl::Status creation_status() const;

  /// Stop(2 s).
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Call after each optimizer step, from any thread, one caller at a time: a call while another
  /// thread is inside OnStep is left out and counted. O(1), no allocation and no lock where no
  /// snapshot is due; a copy of the weights where one is. Does nothing on a monitor that is
  /// stopped, inert or disabled.
  void OnStep(const StepInfo& info) noexcept;

  /// With MonitorOptions::copy_beside_training, call before each optimizer step, on the thread that
  /// steps: the update stream waits for a copy of the parameters that is still under way. A
  /// snapshot before whose next OnStep this was not called is left out and counted. Otherwise it
  /// does nothing.
  void BeforeUpdate() noexcept;

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
  /// works at full speed meanwhile, and measures the last step with all data and curvature where
  /// `timeout` allows that: a second time, where it was measured with less. A snapshot before the
  /// last one may take a quarter of `timeout`; what is not measured in time has the status
  /// out_of_time in its report. Exporters go on serving.
  ///
  /// DeadlineExceeded if the losses closure or a slice under way does not end within `timeout`, and
  /// Cancelled soon after `cancel` was; in both cases the work goes on. FailedPrecondition before
  /// the first OnStep and after Stop; the creation_status of an inert monitor.
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel = {});

  /// Cancels what is being measured, and stops the monitor thread and the exporters. Idempotent; a
  /// second caller waits for the first. DeadlineExceeded if the losses closure does not return in
  /// time: the thread is then left behind and touches nothing but that closure.
  absl::Status Stop(std::chrono::milliseconds deadline);

  /// What will be measured, as text: layers covered and skipped with the reason, bytes, and the
  /// plan with its estimated seconds of work.
  std::string Describe() const;

  /// Counters and gauges as they are now. Thread-safe.
  MonitorStatus status() const;
  /// The newest report, or null. Thread-safe.
  std::shared_ptr<const AnalyzedReport> latest() const;
  /// The server that MonitorOptions::serve has started, and its addresses. Thread-safe.
  ServerStatus served() const;
  /// Commands to this monitor. Thread-safe; lives as long as the monitor. One that is disabled or
  /// inert ignores them.
  Control& control();

 private:
  struct State;
  explicit Monitor(std::unique_ptr<State> state);
  static absl::StatusOr<std::unique_ptr<internal::RunningMonitor>> Start(
      std::unique_ptr<Subject> subject, MonitorOptions options,
      std::vector<std::unique_ptr<Exporter>>& exporters);
  // Null where it is disabled, inert, or in a child of the process that created it.
  internal::RunningMonitor* running() const noexcept;
  internal::InertMonitor* inert() const noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_MONITOR_H_
