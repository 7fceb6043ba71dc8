#include "client/connection.h"

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "command_proto.h"
#include "grpcpp/create_channel.h"

namespace ptqwatch::internal {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const ClientSecurity& security) {
  if (!security.tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = security.roots,
                               .pem_private_key = security.key,
                               .pem_cert_chain = security.certificate});
}

std::shared_ptr<grpc::Channel> MakeChannel(const Target& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Servers are inside the cluster; http_proxy is for connections that leave it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Otherwise a new connection would wait out the backoff of the previous one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Detects a vanished peer within a minute, even if nothing is sent.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 40'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The scheme keeps gRPC from parsing a host named "unix" as one.
  return grpc::CreateCustomChannel(StrCat("dns:///", target.address.ToString()),
                                   CredentialsOf(target.security), arguments);
}

// Explains a TLS problem with a reachable server; empty for any other failure.
std::string TlsReason(const std::string& message, const ClientSecurity& security) {
  const ClientSecurity::Names& names = security.names;
  if (absl::StrContains(message, "certificate verify failed") ||
      absl::StrContains(message, "CERTIFICATE_VERIFY_FAILED")) {
    return StrCat("its certificate is not valid now, or not signed by the authorities of ",
                  names.roots);
  }
  if (absl::StrContains(message, "Hostname Verification") ||
      absl::StrContains(message, "Peer name")) {
    return "its certificate is for another host name";
  }
  const bool closed =
      absl::StrContains(message, "Socket closed") || absl::StrContains(message, "reset by peer");
  if (closed) {
    constexpr std::string_view kClosed = "it closed the connection: ";
    if (!security.tls) {
      return StrCat(kClosed, "if it speaks TLS, give ", names.roots, " or ", names.tls);
    }
    return security.certificate.empty()
               ? StrCat(kClosed, "perhaps it requires a certificate, see ", names.certificate)
               : StrCat(kClosed, "perhaps it does not accept the certificate of ",
                        names.certificate);
  }
  const bool handshake = security.tls && absl::StrContains(message, "andshake");
  return handshake ? "TLS handshake failed: does it speak TLS?" : "";
}

// The part of gRPC's message about a failed connection that helps a user.
std::string Reason(const std::string& message) {
  if (absl::StrContains(message, "Connection refused")) return "connection refused";
  if (absl::StrContains(message, "DNS resolution failed")) return "no such host";
  if (absl::StrContains(message, "No route to host")) return "no route to that host";
  if (absl::StrContains(message, "Network is unreachable")) return "network is unreachable";
  return Printable(message);
}

std::string Explanation(const grpc::Status& status, const Target& server) {
  const std::string address = Printable(server.ToString());
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
      if (const std::string tls = TlsReason(message, server.security); !tls.empty()) {
        return StrCat("cannot talk to ", address, ": ", tls);
      }
      return StrCat("cannot reach ", address, " (", Reason(status.error_message()),
                    "): is the trainer running? ", kWhere);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return StrCat("no answer from ", address, " within ", kCallTimeout.count() / 1000,
                    " s: is the trainer running? ", kWhere);
    case grpc::StatusCode::UNIMPLEMENTED:
      return StrCat("the server at ", address, " is not a ptqwatch server of this version (",
                    message, "); ", kWhere);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return StrCat(address, " is at its limit: ", message);
    case grpc::StatusCode::NOT_FOUND:
      return StrCat(address, " follows another run: ", message);
    case grpc::StatusCode::OUT_OF_RANGE:
      return StrCat("the run at ", address, " has not reached that report: ", message);
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::PERMISSION_DENIED:
      return StrCat(address, " refuses: ", message);
    case grpc::StatusCode::UNAUTHENTICATED:
      return StrCat(address, " refuses: ", message, " (see ", server.security.names.token, ")");
    default:
      return StrCat(address, " answers with error ", static_cast<int>(status.error_code()), ": ",
                    message);
  }
}

}  // namespace

Connection::Connection(const Target& target, std::chrono::milliseconds call_timeout)
    : call_timeout_(call_timeout),
      run_(target.run),
      security_(target.security),
      stub_(v1::MonitorService::NewStub(MakeChannel(target))) {}

void Connection::Authorize(grpc::ClientContext& context) const {
  if (!security_.token.empty()) {
    context.AddMetadata("authorization", StrCat("Bearer ", security_.token));
  }
}

template <typename Request, typename Response>
grpc::Status Connection::Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(CallDeadline());
  Authorize(context);
  return (stub_.get()->*method)(&context, request, response);
}

grpc::Status Connection::ListRuns(v1::ListRunsResponse* response) {
  return Call(&Stub::ListRuns, v1::ListRunsRequest(), response);
}

v1::GetStatusRequest Connection::StatusRequest() const {
  v1::GetStatusRequest request;
  request.set_run_id(run_);
  return request;
}

grpc::Status Connection::GetStatus(v1::GetStatusResponse* response) {
  return Call(&Stub::GetStatus, StatusRequest(), response);
}

grpc::Status Connection::ListReports(v1::ListReportsRequest request,
                                     v1::ListReportsResponse* response) {
  request.set_run_id(run_);
  return Call(&Stub::ListReports, request, response);
}

grpc::Status Connection::Do(const Command& command, v1::DoResponse* response) {
  v1::DoRequest request;
  request.set_run_id(run_);
  ToProto(command, &request);
  return Call(&Stub::Do, request, response);
}

absl::Status ExplainFailure(const grpc::Status& status, const Target& target) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      Explanation(status, target));
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
