#include "connection.h"

#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const HostPort& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A trainer is reached directly; http_proxy is for connections that leave the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Otherwise a new connection would wait out the backoff of the previous one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A peer that vanished is noticed within a minute, even while nothing is sent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 40'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // With the scheme: gRPC would take a host named "unix" for one.
  return grpc::CreateCustomChannel(StrCat("dns:///", address.ToString()),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// The part of gRPC's message about a failed connection that helps a user.
std::string Reason(const std::string& message) {
  if (absl::StrContains(message, "Connection refused")) return "connection refused";
  if (absl::StrContains(message, "DNS resolution failed")) return "no such host";
  if (absl::StrContains(message, "No route to host")) return "no route to that host";
  if (absl::StrContains(message, "Network is unreachable")) return "network is unreachable";
  if (absl::StrContains(message, "Socket closed") || absl::StrContains(message, "reset by peer")) {
    return "the connection was closed";
  }
  return Printable(message);
}

std::string Explanation(const grpc::Status& status, const HostPort& server) {
  const std::string address = server.ToString();
  const std::string message = Printable(status.error_message());
  constexpr std::string_view kWhere =
      "a trainer prints its address as \"grpc HOST:PORT\" (its /metrics has another port)";
  if (MessageWasTooLarge(status)) {
    return StrCat("a message of ", address, " is larger than the ", kMaxMessageBytes >> 20,
                  " MiB that ptqwatch accepts: ", message);
  }
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      if (MonitorHasStopped(status)) return StrCat("the run at ", address, " is over: ", message);
      return StrCat("cannot reach ", address, " (", Reason(status.error_message()),
                    "): is the trainer running? ", kWhere);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return StrCat("no answer from ", address, " within ", kCallTimeout.count() / 1000,
                    " s: is the trainer running? ", kWhere);
    case grpc::StatusCode::UNIMPLEMENTED:
      return StrCat("the server at ", address, " is not a ptqwatch server of this version (",
                    message, "); ", kWhere);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return StrCat(address, " accepts no more watchers: ", message);
    case grpc::StatusCode::NOT_FOUND:
      return StrCat(address, " follows another run: ", message);
    case grpc::StatusCode::OUT_OF_RANGE:
      return StrCat("the run at ", address, " has not reached that report: ", message);
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return StrCat(address, " refuses: ", message);
    default:
      return StrCat(address, " answers with error ", static_cast<int>(status.error_code()), ": ",
                    message);
  }
}

}  // namespace

Connection::Connection(const HostPort& address, std::chrono::milliseconds call_timeout)
    : call_timeout_(call_timeout), stub_(v1::MonitorService::NewStub(MakeChannel(address))) {}

template <typename Request, typename Response>
grpc::Status Connection::Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(CallDeadline());
  return (stub_.get()->*method)(&context, request, response);
}

grpc::Status Connection::GetStatus(v1::GetStatusResponse* response) {
  return Call(&Stub::GetStatus, v1::GetStatusRequest(), response);
}

grpc::Status Connection::ListReports(const v1::ListReportsRequest& request,
                                     v1::ListReportsResponse* response) {
  return Call(&Stub::ListReports, request, response);
}

grpc::Status Connection::RequestSnapshot(v1::RequestSnapshotResponse* response) {
  return Call(&Stub::RequestSnapshot, v1::RequestSnapshotRequest(), response);
}

grpc::Status Connection::RequestSlice(const v1::RequestSliceRequest& request,
                                      v1::RequestSliceResponse* response) {
  return Call(&Stub::RequestSlice, request, response);
}

grpc::Status Connection::Pause() {
  v1::PauseResponse response;
  return Call(&Stub::Pause, v1::PauseRequest(), &response);
}

grpc::Status Connection::Resume() {
  v1::ResumeResponse response;
  return Call(&Stub::Resume, v1::ResumeRequest(), &response);
}

grpc::Status Connection::SetInterval(int64_t steps) {
  v1::SetIntervalRequest request;
  request.set_every_steps(steps);
  v1::SetIntervalResponse response;
  return Call(&Stub::SetInterval, request, &response);
}

absl::Status ExplainFailure(const grpc::Status& status, const HostPort& address) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      Explanation(status, address));
}

bool MonitorHasStopped(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         absl::StrContains(status.error_message(), "monitor") &&
         absl::StrContains(status.error_message(), "stopped");
}

bool MessageWasTooLarge(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         absl::StrContains(status.error_message(), "larger than max");
}

}  // namespace ptqwatch::internal
