#ifndef PTQWATCH_PROTO_CLIENT_REMOTE_WATCH_H_
#define PTQWATCH_PROTO_CLIENT_REMOTE_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/seen_reports.h"
#include "client/connection.h"
#include "client/report_stream.h"
#include "client/target.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {

/// RunSource::Watch for a run at a server. It streams the reports, reconnects when the connection
/// is lost, and continues after the last report seen, or with the first report of another run. Not
/// thread-safe.
class RemoteWatch {
 public:
  /// `clock`, which times the waits, and `listener` must outlive it.
  RemoteWatch(Target target, WatchOptions options, Clock* clock, WatchListener* listener);

  /// Returns OK if the listener ended it or the monitor stopped (exit_when_done), else an error
  /// with a message of one line for the user.
  absl::Status Run();

 private:
  /// Connects and streams until the stream ends; returns why it ended.
  grpc::Status Session();
  grpc::Status Stream(Connection* connection);
  void Greet(const RunStatus& status);
  void NoteContact();
  /// Returns false if the listener ended the watch.
  bool Accept(const v1::WatchReportsResponse& response);
  /// After a session has ended: OK to try again, else the final error.
  absl::Status Judge(const grpc::Status& ended);
  /// Returns false if the listener ended the watch.
  bool Sleep(std::chrono::nanoseconds duration);
  std::chrono::nanoseconds Patience() const;

  const Target target_;
  const WatchOptions options_;
  Clock* const clock_;
  WatchListener* const listener_;

  std::optional<int64_t> after_;
  std::optional<int64_t> after_event_;
  SeenReports seen_;
  int64_t until_ = 0;  ///< with until_now: newest sequence at the first connection
  std::string run_id_;
  int32_t attempt_ = 0;
  int64_t steps_total_ = 0;  ///< at the last connection
  bool reached_ = false;     ///< the server has answered at least once
  bool connected_ = false;   ///< in this session
  bool streamed_ = false;    ///< a stream has been open
  bool resuming_ = false;    ///< after_ comes from the server, not from the options
  bool lost_ = false;        ///< the listener was told that the connection is lost
  bool stopped_ = false;     ///< by the listener
  std::chrono::nanoseconds last_contact_;
  std::chrono::nanoseconds backoff_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_REMOTE_WATCH_H_
