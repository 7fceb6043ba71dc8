#ifndef PTQWATCH_PROTO_CLIENT_CONNECTION_H_
#define PTQWATCH_PROTO_CLIENT_CONNECTION_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/target.h"
#include "grpcpp/grpcpp.h"
#include "ptqwatch/control.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"

namespace ptqwatch::internal {

/// Largest message accepted from a server.
inline constexpr int kMaxMessageBytes = 64 << 20;
/// Timeout of all calls except WatchReports.
inline constexpr std::chrono::milliseconds kCallTimeout{4000};

/// A connection to the server of a target, without a proxy. A connection that failed stays failed;
/// make a new one to try again. Not thread-safe.
class Connection {
 public:
  explicit Connection(const Target& target, std::chrono::milliseconds call_timeout = kCallTimeout);

  grpc::Status ListRuns(v1::ListRunsResponse* response);
  grpc::Status GetStatus(v1::GetStatusResponse* response);
  /// Sets the run_id of `request` itself.
  grpc::Status ListReports(v1::ListReportsRequest request, v1::ListReportsResponse* response);
  grpc::Status Do(const Command& command, v1::DoResponse* response);
  v1::GetStatusRequest StatusRequest() const;
  /// Adds the token to the context of a call made through stub(). Call it before the call begins.
  void Authorize(grpc::ClientContext& context) const;
  v1::MonitorService::Stub& stub() { return *stub_; }
  std::chrono::system_clock::time_point CallDeadline() const {
    return std::chrono::system_clock::now() + call_timeout_;
  }

 private:
  using Stub = v1::MonitorService::Stub;
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response);

  std::chrono::milliseconds call_timeout_;
  std::string run_;
  ClientSecurity security_;
  std::unique_ptr<v1::MonitorService::Stub> stub_;
};

/// Explains a failed call in one printable line that names the target, with the code of the call.
absl::Status ExplainFailure(const grpc::Status& status, const Target& target);

/// Whether the server ended the stream because its monitor stopped, as opposed to a lost
/// connection.
bool MonitorHasStopped(const grpc::Status& status);
/// Whether a message exceeded kMaxMessageBytes.
bool MessageWasTooLarge(const grpc::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_CONNECTION_H_
