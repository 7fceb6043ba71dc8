#ifndef PTQWATCH_GRPC_CONNECTION_DOOR_H_
#define PTQWATCH_GRPC_CONNECTION_DOOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/listener.h"
#include "base/mutex.h"
#include "base/net_address.h"
#include "base/process_end.h"
#include "base/thread.h"
#include "grpcpp/server_builder.h"

namespace ptqwatch::internal {

/// Hands connections to a gRPC server, at most so many at a time, and ends those that send more
/// than clients do. gRPC 1.51 by itself knows neither limit: idle connections take every descriptor
/// of the process (CVE-2023-4785), and one that sends headers without end takes all of its memory
/// (CVE-2023-33953).
class ConnectionDoor {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  /// A connection may send so many bytes at once, and so many a second in the long run.
  static constexpr int64_t kBurstBytes = int64_t{1} << 20;
  static constexpr int64_t kBytesASecond = int64_t{256} << 10;

  /// Errors as StartThread.
  static absl::StatusOr<std::unique_ptr<ConnectionDoor>> Open(std::unique_ptr<Acceptor> acceptor,
                                                              size_t max_connections);
  ~ConnectionDoor() { Close(); }
  ConnectionDoor(const ConnectionDoor&) = delete;
  ConnectionDoor& operator=(const ConnectionDoor&) = delete;

  /// Listens on `socket`, at `address` in messages; errors as Listener::Start. Once.
  absl::Status Listen(BoundSocket socket, const std::string& address);
  /// Hands over a connection, or closes it where there are too many.
  void Take(int descriptor);
  /// No connection is handed over afterwards. Before the server is shut down. Idempotent. Nothing
  /// in a child of fork().
  void Close();

 private:
  // gRPC does not say when it closes its descriptor. Ours is a duplicate, so that what is looked at
  // and ended is this connection, and never what got the number afterwards.
  struct Connection {
    int grpcs;
    int ours;
    double allowance;  // bytes that it may still send
    int64_t received;  // as of the last look
  };

  ConnectionDoor(std::unique_ptr<Acceptor> acceptor, size_t max_connections)
      : acceptor_(std::move(acceptor)), max_connections_(max_connections) {}
  void Watch();
  void LookAtAll(double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProcessMark process_;
  const std::unique_ptr<Acceptor> acceptor_;
  const size_t max_connections_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  Thread watcher_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_CONNECTION_DOOR_H_
