#ifndef PTQWATCH_TOOLS_PTQWATCH_REQUESTED_SLICE_H_
#define PTQWATCH_TOOLS_PTQWATCH_REQUESTED_SLICE_H_

#include <chrono>
#include <cstdint>
#include <string_view>

#include "client/follower.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// Follows a run until a requested slice has ended, or the deadline passes, and shows its progress.
/// Not thread-safe.
class RequestedSlice final : public FollowListener {
 public:
  /// `number` is the server's answer to the request; `deadline` is a time of `clock`. Clock and
  /// terminal must outlive it.
  RequestedSlice(int32_t number, std::chrono::nanoseconds deadline, Clock* clock,
                 Terminal* terminal);

  bool OnReport(const v1::Report&, int64_t) override { return true; }
  void OnStatus(const v1::GetStatusResponse& status) override;
  void OnNotice(std::string_view text) override;
  bool OnTick(bool connected) override;

  /// As last seen.
  const v1::SliceStatus& slice() const { return slice_; }

 private:
  bool ended() const;

  const int32_t number_;
  const std::chrono::nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  v1::SliceStatus slice_;
  bool lost_ = false;  ///< the server has another slice now
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REQUESTED_SLICE_H_
