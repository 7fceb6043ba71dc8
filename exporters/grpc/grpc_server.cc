#include "grpc_server.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/net_address.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace ptqwatch::internal {
namespace {

// Requests are tiny.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr size_t kMaxMemoryBytes = size_t{64} << 20;
constexpr int kMaxThreads = 4;
// Further calls of a connection wait. Each open stream costs about 17 KB.
constexpr int kMinStreams = 128;
// A client that vanishes is noticed after a minute. Reports may be hours apart, so pings go on
// without data in between.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 30'000;

// The numeric address that gRPC shall bind. Binding is tried here first, and undone, because gRPC
// would only print on stderr why it fails.
absl::StatusOr<std::string> BindableTarget(const ListenOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(const HostPort asked,
                            ParseListenAddress(options.kind, options.address));
  PTQWATCH_ASSIGN_OR_RETURN(const BoundSocket bound, BindListenAddress(options));
  return StrCat(bound.numeric_host(), ":", asked.port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const ListenOptions& options, int max_streams, const std::vector<grpc::Service*>& services) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string target, BindableTarget(options));

  grpc::ResourceQuota quota("ptqwatch");
  quota.SetMaxThreads(kMaxThreads).Resize(kMaxMemoryBytes);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(target, grpc::InsecureServerCredentials(), &port)
      .SetResourceQuota(quota)
      .SetMaxReceiveMessageSize(kMaxRequestBytes)
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, std::max(max_streams, kMinStreams))
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                          kMinPingIntervalMs);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        StrCat("grpc address '", options.address, "': gRPC cannot listen on ", target));
  }
  const std::string host = options.address.substr(0, options.address.rfind(':'));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), StrCat(host, ":", port)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::milliseconds(0)); }

void GrpcServer::Shutdown(std::chrono::milliseconds grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_.reset();
}

}  // namespace ptqwatch::internal
