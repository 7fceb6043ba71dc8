#include "grpc_server.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "listen_address.h"

namespace ptqwatch::internal {
namespace {

// Requests are tiny.
constexpr int kMaxRequestBytes = 64 << 10;
constexpr size_t kMemoryBytes = size_t{64} << 20;
constexpr int kMaxThreads = 4;
// Streams of one connection, beyond which its calls wait: each costs some 17 KB.
constexpr int kLeastStreams = 128;
// A client that is gone without a word is noticed after a minute; reports may be hours apart, so
// pings go on without any between them.
constexpr int kKeepaliveTimeMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kLeastPingIntervalMs = 30'000;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::string& address, bool allow_remote, int streams_a_connection,
    const std::vector<grpc::Service*>& services) {
  const absl::StatusOr<ListenAddress> target = FindListenAddress(address, allow_remote);
  if (!target.ok()) return target.status();

  grpc::ResourceQuota quota("ptqwatch");
  quota.SetMaxThreads(kMaxThreads).Resize(kMemoryBytes);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(target->numeric, grpc::InsecureServerCredentials(), &port)
      .SetResourceQuota(quota)
      .SetMaxReceiveMessageSize(kMaxRequestBytes)
      .AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                          std::max(streams_a_connection, kLeastStreams))
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                          kLeastPingIntervalMs);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        StrCat("grpc address '", address, "': gRPC cannot listen on ", target->numeric));
  }
  return std::unique_ptr<GrpcServer>(
      new GrpcServer(std::move(server), StrCat(target->host, ":", port)));
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
