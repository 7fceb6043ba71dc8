#ifndef PTQWATCH_MONITOR_RELAY_MONITOR_H_
#define PTQWATCH_MONITOR_RELAY_MONITOR_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "handover/page.h"
#include "monitor/inert_monitor.h"
#include "monitor/monitor_part.h"
#include "staging/host_relay.h"

namespace ptqwatch::internal {

/// The monitor of a host that has only a part of a model: the first host measures.
class RelayMonitor final : public MonitorPart {
 public:
  /// `relay` must outlive it. `page` is that of this host's first rank.
  RelayMonitor(HostRelay& relay, std::shared_ptr<Page> page)
      : relay_(relay), page_(std::move(page)) {}

  void OnStep(const StepInfo& /*info*/) noexcept override {}
  /// Waits until the first host has finished the last step, and returns its result.
  absl::Status Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) override;
  absl::Status Stop(std::chrono::milliseconds deadline) override;
  std::string Describe() const override {
    return "this host has a part of the model, which the first host measures\n";
  }
  MonitorStatus status() const override;
  /// Null: the reports are the first host's.
  std::shared_ptr<const AnalyzedReport> latest() const override { return nullptr; }
  Control& control() override { return NoControl(); }

 private:
  HostRelay& relay_;
  const std::shared_ptr<Page> page_;
  std::atomic<bool> stopped_{false};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_RELAY_MONITOR_H_
