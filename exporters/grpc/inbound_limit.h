#ifndef PTQWATCH_GRPC_INBOUND_LIMIT_H_
#define PTQWATCH_GRPC_INBOUND_LIMIT_H_

#include <chrono>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace ptqwatch::internal {

/// Ends connections that send a server more than requests need: over 2 MiB beyond 256 KiB a second.
/// gRPC 1.51 keeps the headers of a request in memory as long as CONTINUATION frames follow
/// (CVE-2023-33953); its own limits count a frame at a time.
class InboundLimit {
 public:
  /// Watches the connections of this process whose local port is `port`, on a thread of its own,
  /// ten times a second. About 2 us a descriptor each time.
  static absl::StatusOr<std::unique_ptr<InboundLimit>> Start(int port);
  ~InboundLimit();
  InboundLimit(const InboundLimit&) = delete;
  InboundLimit& operator=(const InboundLimit&) = delete;

 private:
  struct Connection {
    double received = 0;  // bytes since it was accepted
    double ahead = 0;     // bytes beyond those allowed
    bool seen = false;    // in this round
  };

  explicit InboundLimit(int port) : port_(port) {}
  void Run();
  void Check();
  void Check(int descriptor);

  const int port_;
  std::map<int, Connection> connections_;  // by descriptor
  Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_INBOUND_LIMIT_H_
