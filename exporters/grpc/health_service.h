#ifndef PTQWATCH_GRPC_HEALTH_SERVICE_H_
#define PTQWATCH_GRPC_HEALTH_SERVICE_H_

#include <functional>
#include <set>
#include <string>

#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/server_callback.h"
#include "ptqwatch/wire/health.pb.h"

namespace ptqwatch::internal {

/// grpc.health.v1.Health for one server. EnableDefaultHealthCheckService of gRPC would change all
/// servers of the process, including the trainer's. Answers Check, which probes and load balancers
/// use. Watch is UNIMPLEMENTED, which clients must take for "no health checking" (gRPC proposal
/// A17). Thread-safe.
class HealthService final : public grpc::Service {
 public:
  /// `services` are the names it knows, the server as a whole ("") among them. All have the status
  /// that `serving` says, which is called by any thread.
  HealthService(std::set<std::string> services, std::function<bool()> serving);

 private:
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const wire::HealthCheckRequest* request,
                                  wire::HealthCheckResponse* response);

  const std::set<std::string> services_;
  const std::function<bool()> serving_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_HEALTH_SERVICE_H_
