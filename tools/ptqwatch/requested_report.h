#ifndef PTQWATCH_TOOLS_PTQWATCH_REQUESTED_REPORT_H_
#define PTQWATCH_TOOLS_PTQWATCH_REQUESTED_REPORT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "ptqwatch/run_source.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// Follows a run until the report of a requested snapshot arrives, the snapshot fails, or the
/// deadline passes. Not thread-safe.
class RequestedReport final : public WatchListener {
 public:
  /// `before` is the run's status before the request; `deadline` is a time of `clock`. Clock and
  /// terminal must outlive it.
  RequestedReport(const MonitorStatus& before, std::chrono::nanoseconds deadline, Clock* clock,
                  Terminal* terminal);

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnStatus(const RunStatus& status) override;
  void OnNotice(std::string_view text) override;
  bool OnTick(bool connected) override;

  const std::optional<AnalyzedReport>& report() const { return report_; }
  const std::optional<MonitorStatus>& status() const { return status_; }
  bool failed() const { return failed_; }

 private:
  const int64_t first_step_;
  const std::chrono::nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  std::chrono::nanoseconds last_step_time_;
  std::optional<AnalyzedReport> report_;
  std::optional<MonitorStatus> status_;
  int64_t failed_before_ = 0;
  bool failed_ = false;
  bool noticed_ = false;  ///< about a run that makes no steps
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REQUESTED_REPORT_H_
