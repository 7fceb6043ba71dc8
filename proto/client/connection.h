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
/// How long a call other than WatchReports may take.
inline constexpr std::chrono::milliseconds kCallTimeout{4000};

/// One attempt to talk to the server of a target, without a proxy. A connection
/// that failed stays failed: make another one to try again. Not thread-safe.
class Connection {
 public:
  explicit Connection(const Target& target, std::chrono::milliseconds call_timeout = kCallTimeout);

  grpc::Status ListRuns(v1::ListRunsResponse* response);
  grpc::Status GetStatus(v1::GetStatusResponse* response);
  /// `request` without a run_id.
  grpc::Status ListReports(v1::ListReportsRequest request, v1::ListReportsResponse* response);
  grpc::Status Do(const Command& command, v1::DoResponse* response);
  v1::GetStatusRequest StatusRequest() const;
  /// What a call needs that does not go through the functions above, before it begins.
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

/// Why a call failed, as one printable line that names the target; the code is that of the call.
absl::Status ExplainFailure(const grpc::Status& status, const Target& target);

/// The server ended a stream because its monitor was stopped; the connection was not lost.
bool MonitorHasStopped(const grpc::Status& status);
/// A message was larger than kMaxMessageBytes.
bool MessageWasTooLarge(const grpc::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_CONNECTION_H_
