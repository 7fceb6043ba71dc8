#ifndef PTQWATCH_GRPC_GRPC_SERVER_H_
#define PTQWATCH_GRPC_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "feed/served_runs.h"
#include "ptqwatch/server_security.h"
#include "security/check_security.h"

namespace ptqwatch::internal {

/// Sets the functions that make the two protobuf forms of a report.
void AddProtoForms(ReportForms& forms);

/// Serves runs as ptqwatch.v1.MonitorService, together with gRPC's own health service (SERVING for
/// "" and "ptqwatch.v1.MonitorService" while a run is open) and server reflection. Both plugins are
/// then part of every gRPC server that this process builds. Thread-safe.
class GrpcServer {
 public:
  struct Options {
    ListenOptions listen = {};
    ServerSecurity security = {};  ///< already accepted by CheckSecurity
    BearerToken token = {};        ///< required by every call of MonitorService
    bool allow_control = false;    ///< accept commands
    int max_subscribers = 1024;    ///< open streams; further ones get RESOURCE_EXHAUSTED
  };

  /// Binds and serves at once. Returns the errors of BindListenAddress. `runs` must outlive this.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(Options options, const ServedRuns* runs);
  virtual ~GrpcServer() = default;

  /// The host from the options with the port in use.
  virtual const std::string& address() const = 0;
  /// Sends newly published data to the streams. Callable from any thread; returns at once.
  virtual void Wake() = 0;
  /// Lets streams of finished runs send the rest until the deadline, then ends all calls and
  /// connections. Idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_GRPC_SERVER_H_
