#ifndef PTQWATCH_PROTO_CLIENT_FOLLOWER_H_
#define PTQWATCH_PROTO_CLIENT_FOLLOWER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/connection.h"
#include "client/report_stream.h"
#include "client/target.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

struct FollowOptions {
  /// Only reports after this one; 0: all the server has; unset: those made from now on.
  std::optional<int64_t> after_sequence = 0;
  bool without_layers = false;
  /// Ask for the status at every tick as well, or as often as ask_every says.
  bool ask_status = false;
  std::optional<std::chrono::milliseconds> ask_every = std::nullopt;
  bool with_events = false;
  /// Return when the monitor is stopped; otherwise wait for a new one.
  bool exit_when_done = false;
  /// How long a server may be unreachable. Unset: ten seconds before its first answer, then without
  /// limit, or a minute with exit_when_done.
  std::optional<std::chrono::nanoseconds> give_up_after = std::nullopt;
  /// Waits between attempts: they double from the first to the longest.
  std::chrono::milliseconds first_backoff{500};
  std::chrono::milliseconds longest_backoff{10'000};
  std::chrono::milliseconds tick{1000};
};

/// Receives what a Follower gets, on the thread that called Run.
class FollowListener {
 public:
  virtual ~FollowListener() = default;
  /// The next report; never the same one twice. `missed` counts lost reports before it. False ends
  /// Run.
  virtual bool OnReport(const v1::Report& report, int64_t missed) = 0;
  /// The next event, with FollowOptions::with_events; never the same one twice.
  virtual void OnEvent(const v1::Event&) {}
  virtual void OnStatus(const v1::GetStatusResponse&) {}
  /// A message for the user: the connection was lost or is back, or there is another run.
  virtual void OnNotice(std::string_view text) = 0;
  /// At least once a tick. False ends Run.
  virtual bool OnTick(bool connected) = 0;
};

/// Follows the run of a target. It streams the reports, reconnects when the connection is lost,
/// and continues after the last report seen, or with the first report of another run. Not
/// thread-safe.
class Follower {
 public:
  /// `clock`, which times the waits, and `listener` must outlive it.
  Follower(Target target, FollowOptions options, Clock* clock, FollowListener* listener);

  /// OK if the listener ended it or the monitor was stopped (exit_when_done); else an error whose
  /// message is one line for the user.
  absl::Status Run();
  /// After Run: whether the monitor was stopped.
  bool over() const { return over_; }

 private:
  /// Connects and streams until the stream ends; returns why it ended.
  grpc::Status Session();
  grpc::Status Stream(Connection* connection);
  void Greet(const v1::GetStatusResponse& status);
  void NoteContact();
  /// False when the listener ended it.
  bool Accept(const v1::WatchReportsResponse& response);
  /// After a session has ended: OK to try again, else the final error.
  absl::Status Judge(const grpc::Status& ended);
  /// False when the listener ended it.
  bool Sleep(std::chrono::nanoseconds duration);
  std::chrono::nanoseconds Patience() const;

  const Target target_;
  const FollowOptions options_;
  Clock* const clock_;
  FollowListener* const listener_;

  std::optional<int64_t> after_;
  std::optional<int64_t> after_event_;
  std::string run_id_;
  int32_t attempt_ = 0;
  int64_t steps_total_ = 0;  ///< when last connected
  bool reached_ = false;     ///< the server has answered at least once
  bool connected_ = false;   ///< in this session
  bool streamed_ = false;    ///< a stream was open once
  bool resuming_ = false;    ///< after_ comes from the server, not from the options
  bool lost_ = false;        ///< the listener knows that the connection is lost
  bool stopped_ = false;     ///< by the listener
  bool over_ = false;        ///< the monitor was stopped, and Run was to return then
  std::chrono::nanoseconds last_contact_;
  std::chrono::nanoseconds backoff_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_FOLLOWER_H_
