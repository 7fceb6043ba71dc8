#ifndef PTQWATCH_MONITOR_INERT_MONITOR_H_
#define PTQWATCH_MONITOR_INERT_MONITOR_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/process_end.h"
#include "monitor/publisher.h"
#include "monitor/status_board.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// What a monitor is that could not be created: it counts steps and says why it measures nothing,
/// to the log, to the exporters that can be started, and to the journal where that can be written.
class InertMonitor {
 public:
  InertMonitor(const MonitorOptions& options, absl::Status why,
               std::vector<std::unique_ptr<Exporter>> exporters);

  const absl::Status& why() const { return why_; }
  Publisher& publisher() { return publisher_; }
  void OnStep(const StepInfo& info) noexcept;

 private:
  const absl::Status why_;
  Clock* const clock_;
  StatusBoard board_;
  Publisher publisher_;
  std::optional<AtProcessEnd> at_end_;  // last: may be stopping the publisher
};

/// Takes no command: the Control of a monitor that does not measure.
Control& NoControl();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_INERT_MONITOR_H_
