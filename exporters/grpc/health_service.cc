#include "health_service.h"

#include <utility>

#include "base/strings.h"
#include "base/utf8.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
// Generated code knows where this gRPC has its callback handlers.
#include "ptqwatch/v1/monitor_service.grpc.pb.h"

namespace ptqwatch::internal {

using wire::HealthCheckRequest;
using wire::HealthCheckResponse;

HealthService::HealthService(std::set<std::string> services, std::function<bool()> serving)
    : services_(std::move(services)), serving_(std::move(serving)) {
  // As the code generated for a service does.
  AddMethod(new grpc::internal::RpcServiceMethod("/grpc.health.v1.Health/Check",
                                                 grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodCallback(
      0, new grpc::internal::CallbackUnaryHandler<HealthCheckRequest, HealthCheckResponse>(
             [this](grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                    HealthCheckResponse* response) { return Check(context, request, response); }));
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (services_.contains(request->service())) {
    response->set_status(serving_() ? HealthCheckResponse::SERVING
                                    : HealthCheckResponse::NOT_SERVING);
    reactor->Finish(grpc::Status::OK);
  } else {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                 StrCat("no service ", Quoted(request->service()), " here")));
  }
  return reactor;
}

}  // namespace ptqwatch::internal
