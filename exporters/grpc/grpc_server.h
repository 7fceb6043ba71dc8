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

/// Adds the two forms of a report that the service sends.
void AddProtoForms(ReportForms& forms);

/// Serves runs as ptqwatch.v1.MonitorService, with gRPC's own health service (SERVING for "" and
/// for "ptqwatch.v1.MonitorService" while there is a run) and server reflection; both plugins are
/// then part of each gRPC server that this process builds. Thread-safe.
class GrpcServer {
 public:
  struct Options {
    ListenOptions listen = {};
    ServerSecurity security = {};  ///< CheckSecurity has found nothing against it
    BearerToken token = {};        ///< of all calls of MonitorService
    bool allow_control = false;    ///< take commands
    int max_subscribers = 1024;    ///< open streams; one more gets RESOURCE_EXHAUSTED
  };

  /// Binds and serves at once; errors as BindListenAddress. `runs` must outlive this.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(Options options, const ServedRuns* runs);
  virtual ~GrpcServer() = default;

  /// The host as it was given and the port that was taken.
  virtual const std::string& address() const = 0;
  /// Something was published. Any thread; returns at once.
  virtual void Wake() = 0;
  /// Lets streams of runs that are over send what is left until the deadline, then ends all calls
  /// and connections; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_GRPC_SERVER_H_
