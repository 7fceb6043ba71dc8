#ifndef PTQWATCH_GRPC_HEALTH_SERVICE_H_
#define PTQWATCH_GRPC_HEALTH_SERVICE_H_

#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/server_callback.h"
#include "ptqwatch/wire/health.pb.h"

namespace ptqwatch::internal {

/// grpc.health.v1.Health for one server. gRPC's own comes with EnableDefaultHealthCheckService,
/// which is for all servers of the process, the trainer's too. Thread-safe.
class HealthService final : public grpc::Service {
 public:
  /// The services it knows, the server as a whole ("") among them, all with one status:
  /// NOT_SERVING at first.
  explicit HealthService(std::set<std::string> services);
  ~HealthService() override;

  void SetServing(bool serving);
  /// NOT_SERVING for good; each Watch gets that, too, and then ends with UNAVAILABLE.
  void Close();

 private:
  using Status = wire::HealthCheckResponse::ServingStatus;
  class Watcher;

  Status StatusOf(const std::string& service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const wire::HealthCheckRequest* request,
                                  wire::HealthCheckResponse* response);
  grpc::ServerWriteReactor<wire::HealthCheckResponse>* Watch(
      const wire::HealthCheckRequest* request);
  template <typename Change>
  void Update(Change change);

  const std::set<std::string> services_;
  mutable Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_HEALTH_SERVICE_H_
