#ifndef PTQWATCH_GRPC_GRPC_SERVER_H_
#define PTQWATCH_GRPC_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "connection_door.h"
#include "ptqwatch/server_security.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace ptqwatch::internal {

/// A gRPC server with limits on connections, memory, threads and streams, for use inside a
/// trainer's process.
class GrpcServer {
 public:
  /// Binds and serves at once; errors as BindListenAddress. With certificates in `security`, which
  /// have been checked, it speaks TLS. One connection may have `max_streams` calls open, or 128 if
  /// that is more; there are at most 64 more connections than `max_streams`. The services must
  /// outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const ListenOptions& options, const ServerSecurity& security, int max_streams,
      const std::vector<grpc::Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// The host as it was given and the port that was taken.
  const std::string& address() const { return address_; }
  /// Takes no more calls, cancels those that are open after `grace`, and returns when all have
  /// ended. Idempotent.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<ConnectionDoor> door,
             std::string address);
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionDoor> door_;
  const std::string address_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_GRPC_SERVER_H_
