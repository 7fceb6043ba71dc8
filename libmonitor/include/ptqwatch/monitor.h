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
/// inside OnStep and Finish, and no process-global state is touched. After Create nothing throws
/// or aborts; what goes wrong is a status in a report, an Event, a counter and a line to the
/// log sink.
class Monitor {
 public:
  /// Builds the replica, checks the losses closure, plans which layers are quantized, reads the run
  /// directory, starts the exporters and the monitor thread. Takes a few forward passes; costs
  /// twice the model's memory plus one staging copy. Every mistake is found here: InvalidArgument
  /// names the option and its value, FailedPrecondition says what about the model or the closure
  /// does not fit. With PTQWATCH_DISABLE=1 in the environment the monitor is inert and `subject` is
  /// not looked at.
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options = {},
      std::vector<std::unique_ptr<Exporter>> exporters = {});

  /// Stop(2 s).
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Call after each optimizer step, from any thread, one caller at a time. O(1), no allocation and
  /// no lock where no snapshot is due; a copy of the weights where one is. Does nothing on a
  /// monitor that was stopped or is disabled.
  void OnStep(const StepInfo& info) noexcept;

  /// Takes a snapshot at the next OnStep. Thread-safe.
  void RequestSnapshot() noexcept;

  /// Call on the trainer's thread when training is over: takes a snapshot of the last step, unless
  /// that step has one, and waits until everything pending is measured and published. Exporters go
  /// on serving. DeadlineExceeded when `timeout` passes first (the work goes on).
  /// FailedPrecondition before the first OnStep or after Stop.
  absl::Status Finish(std::chrono::milliseconds timeout);

  /// Cancels what is being measured and stops thread and exporters. Idempotent. DeadlineExceeded
  /// when the losses closure does not return in time: the thread is then left behind and touches
  /// nothing but that closure.
  absl::Status Stop(std::chrono::milliseconds deadline);

  /// What will be measured, as text: layers covered and skipped with the reason, bytes, estimated
  /// seconds a snapshot.
  std::string Describe() const;

  /// Counters and gauges as they are now. Thread-safe.
  MonitorStatus status() const;
  /// The newest report, or null. Thread-safe.
  std::shared_ptr<const AnalyzedReport> latest() const;
  /// Remote control, thread-safe; lives as long as the monitor.
  Control& control();

  class Impl;

 private:
  explicit Monitor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_MONITOR_H_
