#ifndef PTQWATCH_MONITOR_INERT_MONITOR_H_
#define PTQWATCH_MONITOR_INERT_MONITOR_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/process_end.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"
#include "publish/publisher.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// Stand-in for a monitor that could not be created. It counts steps and reports why nothing is
/// measured: to the log, to the exporters that can be started, and to the journal if it can be
/// written.
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
  TrainerBoard steps_;
  StatusBoard board_{&steps_};
  Publisher publisher_;
  std::optional<AtProcessEnd> at_end_;  // last: may be stopping the publisher
};

/// The Control of a monitor that does not measure: refuses every command.
Control& NoControl();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_INERT_MONITOR_H_
