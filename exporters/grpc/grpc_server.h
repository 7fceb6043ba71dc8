#ifndef PTQWATCH_GRPC_GRPC_SERVER_H_
#define PTQWATCH_GRPC_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace ptqwatch::internal {

/// A gRPC server with limits that let it live in somebody else's process.
class GrpcServer {
 public:
  /// Binds and serves at once; errors as GrpcExporter::Create. One connection may have
  /// `streams_a_connection` calls open, or 128 if that is more. The services outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& address, bool allow_remote, int streams_a_connection,
      const std::vector<grpc::Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// With the port that was taken.
  const std::string& address() const { return address_; }
  /// Takes no more calls, cancels those that are still there after `grace`, and returns once gRPC
  /// has done with all of them. Idempotent.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::string address);
  std::unique_ptr<grpc::Server> server_;
  const std::string address_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_GRPC_SERVER_H_
