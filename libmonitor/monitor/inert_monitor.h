#ifndef PTQWATCH_MONITOR_INERT_MONITOR_H_
#define PTQWATCH_MONITOR_INERT_MONITOR_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/process_end.h"
#include "monitor/monitor_part.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/options.h"
#include "ptqwatch/step_info.h"
#include "publish/publisher.h"
#include "publish/status_board.h"

namespace ptqwatch::internal {

/// The Control of a monitor that does not measure: refuses every command.
Control& NoControl();

/// Stand-in for a monitor that could not be created. It counts steps and reports why nothing is
/// measured: to the log, to the exporters that can be started, and to the journal if it can be
/// written.
class InertMonitor final : public MonitorPart {
 public:
  InertMonitor(const MonitorOptions& options, absl::Status why,
               std::vector<std::unique_ptr<Exporter>> exporters);

  void OnStep(const StepInfo& info) noexcept override;
  absl::Status Finish(std::chrono::milliseconds, const CancelToken&) override { return why_; }
  absl::Status Stop(std::chrono::milliseconds deadline) override;
  absl::Status creation_status() const override { return why_; }
  std::string Describe() const override;
  MonitorStatus status() const override { return publisher_.status(); }
  std::shared_ptr<const AnalyzedReport> latest() const override { return nullptr; }
  Control& control() override { return NoControl(); }
  void SetServer(const ServerStatus& server, pid_t) override { publisher_.SetServer(server); }
  void AnnounceServer(bool failed, const std::string& message) override;

 private:
  const absl::Status why_;
  Clock* const clock_;
  TrainerBoard steps_;
  StatusBoard board_{&steps_};
  Publisher publisher_;
  std::optional<AtProcessEnd> at_end_;  // last: may be stopping the publisher
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_INERT_MONITOR_H_
