#include "grpc_server.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/net_address.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"
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
// Beside those that the subscribers may have.
constexpr size_t kOtherConnections = 64;
constexpr int kHandshakeTimeoutMs = 5'000;
constexpr int kMaxIdleMs = 600'000;  // without a call
constexpr unsigned kCertificatesReadAgainSeconds = 10;

// gRPC reads the files, and reads them again when they are replaced.
std::shared_ptr<grpc::ServerCredentials> Credentials(const ServerSecurity& security) {
  if (!security.tls()) return grpc::InsecureServerCredentials();
  namespace tls = grpc::experimental;
  const auto files = std::make_shared<tls::FileWatcherCertificateProvider>(
      security.private_key_file, security.certificate_file, security.client_ca_file,
      kCertificatesReadAgainSeconds);
  tls::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (!security.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const ListenOptions& options, const ServerSecurity& security, int max_streams,
    const std::vector<grpc::Service*>& services) {
  PTQWATCH_ASSIGN_OR_RETURN(BoundSocket socket, BindListenAddress(options));
  std::string bound =
      StrCat(options.address.substr(0, options.address.rfind(':')), ":", socket.port());

  grpc::ResourceQuota quota("ptqwatch");
  quota.SetMaxThreads(kMaxThreads).Resize(kMaxMemoryBytes);
  grpc::ServerBuilder builder;
  std::unique_ptr<ConnectionDoor::Acceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          Credentials(security));
  builder.SetResourceQuota(quota)
      .SetMaxReceiveMessageSize(kMaxRequestBytes)
      .AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs)
      .AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs)
      .AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, std::max(max_streams, kMinStreams))
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs)
      .AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0)
      .AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                          kMinPingIntervalMs);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string what = StrCat("grpc address '", options.address, "'");
  if (server == nullptr) return absl::UnavailableError(StrCat(what, ": gRPC cannot start"));
  PTQWATCH_ASSIGN_OR_RETURN(
      std::unique_ptr<ConnectionDoor> door,
      ConnectionDoor::Open(std::move(acceptor),
                           static_cast<size_t>(max_streams) + kOtherConnections));
  PTQWATCH_RETURN_IF_ERROR(door->Listen(std::move(socket), what));
  return std::unique_ptr<GrpcServer>(
      new GrpcServer(std::move(server), std::move(door), std::move(bound)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<ConnectionDoor> door,
                       std::string address)
    : server_(std::move(server)), door_(std::move(door)), address_(std::move(address)) {}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::milliseconds(0)); }

void GrpcServer::Shutdown(std::chrono::milliseconds grace) {
  if (server_ == nullptr) return;
  door_->Close();
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_.reset();
}

}  // namespace ptqwatch::internal
