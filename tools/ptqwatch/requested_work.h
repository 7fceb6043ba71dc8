#ifndef PTQWATCH_TOOLS_PTQWATCH_REQUESTED_WORK_H_
#define PTQWATCH_TOOLS_PTQWATCH_REQUESTED_WORK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// Progress of a slice or a shadow cooldown.
struct WorkProgress {
  int64_t number = 0;  ///< 0: none so far
  int stage = 0;       ///< a change is worth a line
  bool ended = false;
  bool failed = false;  ///< ended without a result
  std::string text;     ///< of a slice that is done: its file
};
WorkProgress SliceProgress(const RunStatus& status);
WorkProgress CooldownProgress(const RunStatus& status);

/// Follows requested work and shows its progress until it ends or the deadline passes. Not
/// thread-safe.
class RequestedWork final : public WatchListener {
 public:
  using Read = std::function<WorkProgress(const RunStatus&)>;
  /// `number` is the server's answer to the request; `deadline` is a time of `clock`. Clock and
  /// terminal must outlive it.
  RequestedWork(Read read, int64_t number, std::chrono::nanoseconds deadline, Clock* clock,
                Terminal* terminal);

  bool OnReport(const AnalyzedReport&, int64_t) override { return true; }
  void OnStatus(const RunStatus& status) override;
  void OnNotice(std::string_view text) override;
  bool OnTick(bool connected) override;

  const RunStatus& status() const { return status_; }

 private:
  const Read read_;
  const int64_t number_;
  const std::chrono::nanoseconds asked_;
  const std::chrono::nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  RunStatus status_;
  int stage_ = -1;
  bool ended_ = false;
  bool lost_ = false;  ///< the server has other work
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REQUESTED_WORK_H_
