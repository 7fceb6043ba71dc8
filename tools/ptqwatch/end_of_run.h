#ifndef PTQWATCH_TOOLS_PTQWATCH_END_OF_RUN_H_
#define PTQWATCH_TOOLS_PTQWATCH_END_OF_RUN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {

/// Passes everything to a view. Stops following a run that died without stopping its monitor, or
/// whose monitor is inert, once the view has its reports and events. Not thread-safe.
class EndOfRun final : public WatchListener {
 public:
  /// A run that dies while it is followed may come back within `patience`; one that is already dead
  /// may not. `since` is the report after which the view begins; unset: the newest.
  EndOfRun(WatchListener* view, std::optional<int64_t> since, std::chrono::nanoseconds patience,
           Clock* clock)
      : view_(view), seen_(since), patience_(patience), clock_(clock) {}

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnEvent(const Event& event) override;
  void OnStatus(const RunStatus& status) override;
  void OnNotice(std::string_view text) override { view_->OnNotice(text); }
  bool OnTick(bool connected) override;

  /// The reason for giving up on the run. OK if that did not happen.
  absl::Status failure() const { return failure_; }
  bool ended_by_view() const { return ended_by_view_; }

 private:
  WatchListener* const view_;
  std::optional<int64_t> seen_;  // the newest report that the view has or skips
  const std::chrono::nanoseconds patience_;
  Clock* const clock_;
  int64_t last_sequence_ = 0;
  bool ended_by_view_ = false;
  int quiet_ticks_ = 0;  // ticks without a report or event
  bool seen_alive_ = false;
  std::optional<std::chrono::nanoseconds> silent_since_;
  absl::Status failure_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_END_OF_RUN_H_
