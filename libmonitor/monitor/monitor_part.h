#ifndef PTQWATCH_MONITOR_MONITOR_PART_H_
#define PTQWATCH_MONITOR_MONITOR_PART_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ptqwatch/control.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// A Monitor's inside: one that measures in this process (RunningMonitor), one whose measuring half
/// is another process (RemoteMonitor), one that only copies its part of a sharded model
/// (ShardMonitor), or one that could not be created (InertMonitor). Monitor documents the members
/// of the same name.
class MonitorPart {
 public:
  virtual ~MonitorPart() = default;

  virtual void OnStep(const StepInfo& info) noexcept = 0;
  virtual void BeforeUpdate() noexcept {}
  virtual void BeginIdle() noexcept {}
  virtual void EndIdle() noexcept {}
  virtual absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) = 0;
  virtual absl::Status Stop(std::chrono::milliseconds deadline) = 0;
  virtual absl::Status creation_status() const { return absl::OkStatus(); }
  virtual std::string Describe() const = 0;
  virtual MonitorStatus status() const = 0;
  virtual std::shared_ptr<const AnalyzedReport> latest() const = 0;
  virtual Control& control() = 0;

  /// The state of the server beside the run; `process` is 0 unless it serves. Called by the server
  /// keeper's thread, and Create. A part without a server ignores it.
  virtual void SetServer(const ServerStatus& /*server*/, pid_t /*process*/) {}
  /// Announces that the server failed or serves again. As SetServer.
  virtual void AnnounceServer(bool /*failed*/, const std::string& /*message*/) {}
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_MONITOR_PART_H_
