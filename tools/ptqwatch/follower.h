#ifndef PTQWATCH_TOOLS_PTQWATCH_FOLLOWER_H_
#define PTQWATCH_TOOLS_PTQWATCH_FOLLOWER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/net_address.h"
#include "connection.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "report_stream.h"

namespace ptqwatch::internal {

struct FollowOptions {
  /// Only reports after this one; 0: all the server has; unset: those made from now on.
  std::optional<int64_t> after_sequence = 0;
  bool without_layers = false;
  /// Ask for the status at every tick as well.
  bool ask_status = false;
  /// Return when the monitor is stopped; else a new one is waited for.
  bool exit_when_done = false;
  /// How long a server may be out of reach. Unset: ten seconds at first; once it answered for ever,
  /// or a minute with exit_when_done.
  std::optional<std::chrono::nanoseconds> give_up_after = std::nullopt;
  /// Waits between attempts: they double from the first to the longest.
  std::chrono::milliseconds first_backoff{500};
  std::chrono::milliseconds longest_backoff{10'000};
  std::chrono::milliseconds tick{1000};
};

/// Told what comes, on the thread that called Follow.
class FollowListener {
 public:
  virtual ~FollowListener() = default;
  /// The next report; never one twice. `missed` counts those before it that are lost. False ends.
  virtual bool OnReport(const v1::Report& report, int64_t missed) = 0;
  virtual void OnStatus(const v1::GetStatusResponse&) {}
  /// Something a person should know: the connection is lost or back, the run is another one.
  virtual void OnNotice(std::string_view text) = 0;
  /// At least once a tick. `connected`: since the last attempt. False ends.
  virtual bool OnTick(bool connected) = 0;
};

/// Follows the run behind an address: streams its reports, connects again when the connection is
/// lost and goes on after the last report seen, or from the first one of another run. One thread's
/// own.
class Follower {
 public:
  /// `clock` and `listener` must outlive it. Backoffs are slept on the clock.
  Follower(HostPort address, FollowOptions options, Clock* clock, FollowListener* listener);

  /// OK when the listener ended it, or with exit_when_done; else a line for a person.
  absl::Status Run();

 private:
  /// Connects and streams until it ends, which the result says why.
  grpc::Status Session();
  grpc::Status Stream(Connection* connection);
  void Greet(const v1::GetStatusResponse& status);
  void ShowLife();
  bool Accept(const v1::WatchReportsResponse& response);
  /// What to do about a session that has ended: OK to try again.
  absl::Status Judge(const grpc::Status& ended);
  /// False when the listener ended it.
  bool Sleep(std::chrono::nanoseconds duration);
  std::chrono::nanoseconds Patience() const;

  const HostPort address_;
  const FollowOptions options_;
  Clock* const clock_;
  FollowListener* const listener_;

  std::optional<int64_t> after_;
  std::string run_id_;
  int32_t attempt_ = 0;
  int64_t steps_total_ = 0;  ///< when last connected
  bool reached_ = false;     ///< the server has answered at least once
  bool connected_ = false;   ///< in this session
  bool streamed_ = false;    ///< a stream was open once
  bool resuming_ = false;    ///< after_ comes from the server, not from the options
  bool lost_ = false;        ///< the loss of the connection was told
  bool stopped_ = false;     ///< by the listener
  std::chrono::nanoseconds last_contact_;
  std::chrono::nanoseconds backoff_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FOLLOWER_H_
