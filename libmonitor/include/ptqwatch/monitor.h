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
class MonitorPart;
struct LinkedMonitor;
class WorkerLink;
}  // namespace internal

/// Watches one model. Training is not changed by a single bit: the live model is only read, inside
/// OnStep and Finish, and no process-global state is touched. After Create nothing throws or
/// aborts. Failures become a status in a report, an Event, a counter and a message to the log sink.
///
/// If the process ends while a monitor lives, by exit() or by returning from main, the monitor is
/// stopped (2 s) before static objects are destroyed. In a child of fork() the monitor does nothing
/// and leaves everything it holds as it is. Such a child should end with _exit(): as in any process
/// with threads, exit() can wait for a lock of libc that a thread held during fork().
class PTQWATCH_EXPORT Monitor {
 public:
  /// Reads the run directory, builds the replica, checks the losses closure, plans which layers are
  /// quantized, and starts the exporters and the monitor thread.
  ///
  /// Cost: a few forward passes, including one of every batch as far as 10 s allow, and some
  /// gradients if curvature is on; memory for twice the model and one staging copy.
  ///
  /// The training run draws the same random numbers as without a monitor, even on other threads
  /// meanwhile (docs/troubleshooting.md lists the exceptions).
  ///
  /// Mistakes are found here: InvalidArgument names the option and its value; FailedPrecondition
  /// says why the model, a batch or the closure is unsuitable; ResourceExhausted means that memory
  /// ran out. Describe names the batches that were not checked for lack of time. OnStep checks its
  /// own arguments: Event::Kind::kMisuse.
  ///
  /// With MonitorOptions::on_failure = kInert, the default, a mistake does not keep training from
  /// starting: Create then returns an inert monitor, whose creation_status is the error, and leaves
  /// out exporters that cannot be started. With PTQWATCH_DISABLE=1 in the environment the monitor
  /// does nothing and ignores `subject`.
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options = {},
      std::vector<std::unique_ptr<Exporter>> exporters = {});

  /// OK if the monitor measures or is disabled; otherwise the reason why it is inert. Thread-safe.
  absl::Status creation_status() const;

  /// Calls Stop(2 s).
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Call after each optimizer step, from any thread but by one caller at a time: a call while
  /// another thread is inside OnStep is ignored and counted. O(1) without allocation or lock if no
  /// snapshot is due; otherwise copies the weights. Does nothing on a stopped, inert or disabled
  /// monitor.
  void OnStep(const StepInfo& info) noexcept;

  /// With MonitorOptions::copy_beside_training, call before each optimizer step on the thread that
  /// steps: the update stream then waits for an unfinished copy of the parameters. If this was not
  /// called between a snapshot and the next OnStep, that snapshot is left out and counted. Does
  /// nothing without that option.
  void BeforeUpdate() noexcept;

  /// Tells the monitor that the trainer is not training, because it evaluates, writes a checkpoint
  /// or waits for data. While a scope exists, the monitor works at full speed and this work is not
  /// charged to its share. Must not outlive the monitor.
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
  /// May be called on any thread; several scopes may exist at once.
  [[nodiscard]] IdleScope Idle() noexcept;

  /// Call on the trainer's thread when training is over. Takes a snapshot of the last step, unless
  /// that step has one, and waits until all pending snapshots are measured and published. Meanwhile
  /// the monitor works at full speed. If `timeout` allows it, the last step is measured with all
  /// data and curvature, for a second time if its first measurement used less. An earlier snapshot
  /// may take a quarter of `timeout`. Measurements that do not finish in time have the status
  /// out_of_time in the report. Exporters keep serving.
  ///
  /// DeadlineExceeded if the losses closure or a slice in progress does not end within `timeout`,
  /// and Cancelled soon after `cancel` was cancelled; in both cases the work goes on.
  /// FailedPrecondition before the first OnStep, after Stop, and if no snapshot of the last step
  /// can be taken. An inert monitor returns its creation_status.
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel = {});

  /// Cancels the current measurement, and stops the monitor thread and the exporters. Idempotent; a
  /// second caller waits for the first. DeadlineExceeded if the losses closure or the disk of
  /// `run_dir` does not return in time: the thread is then left behind and ends when it does.
  absl::Status Stop(std::chrono::milliseconds deadline);

  /// Describes the planned measurements as text: layers covered, layers skipped and why, bytes, and
  /// the plan with its estimated seconds of work.
  std::string Describe() const;

  /// Current counters and gauges. Thread-safe.
  MonitorStatus status() const;
  /// The newest report, or null. Thread-safe.
  std::shared_ptr<const AnalyzedReport> latest() const;
  /// The server started by MonitorOptions::serve, and its addresses. Thread-safe.
  ServerStatus served() const;
  /// Accepts commands to this monitor. Thread-safe; lives as long as the monitor. A disabled or
  /// inert monitor refuses all commands.
  Control& control();

 private:
  struct State;
  explicit Monitor(std::unique_ptr<State> state);
  // With `link`, for a trainer that is another process.
  friend struct internal::LinkedMonitor;
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options,
      std::vector<std::unique_ptr<Exporter>> exporters, internal::WorkerLink* link);
  // Null if the monitor is disabled, or in a child of the process that created it.
  internal::MonitorPart* part() const noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_MONITOR_H_
