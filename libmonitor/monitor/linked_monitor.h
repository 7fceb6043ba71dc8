#ifndef PTQWATCH_MONITOR_LINKED_MONITOR_H_
#define PTQWATCH_MONITOR_LINKED_MONITOR_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// Makes the monitor of a process that measures for a trainer in another process.
struct LinkedMonitor {
  /// As Monitor::Create. The live tensors are those of `link`, which must outlive the monitor. Do
  /// not call the monitor's OnStep: the trainer's process calls that of its ProcessTrainer.
  static absl::StatusOr<std::unique_ptr<Monitor>> Create(
      std::unique_ptr<Subject> subject, MonitorOptions options,
      std::vector<std::unique_ptr<Exporter>> exporters, WorkerLink* link) {
    return Monitor::Create(std::move(subject), std::move(options), std::move(exporters), link);
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_LINKED_MONITOR_H_
