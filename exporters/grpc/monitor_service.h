#ifndef PTQWATCH_GRPC_MONITOR_SERVICE_H_
#define PTQWATCH_GRPC_MONITOR_SERVICE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "run_routes.h"
#include "security/check_security.h"

namespace ptqwatch::internal {

/// All calls of the service take callbacks and are raw: requests are read as ptqwatch.wire has
/// them, and reports are sent as the bytes of the feed.
using MonitorCalls = v1::MonitorService::WithRawCallbackMethod_WatchReports<
    v1::MonitorService::WithRawCallbackMethod_WatchEvents<
        v1::MonitorService::WithRawCallbackMethod_ListReports<
            v1::MonitorService::WithRawCallbackMethod_ListRuns<
                v1::MonitorService::WithRawCallbackMethod_GetStatus<
                    v1::MonitorService::WithRawCallbackMethod_Do<v1::MonitorService::Service>>>>>>;

/// The calls of ptqwatch.v1.MonitorService: reports from the feed of the run that a request names,
/// status from its source, commands to its control.
class MonitorService final : public MonitorCalls {
 public:
  /// `routes` must outlive the server. Without `allow_control` commands are refused; callers that
  /// `token` does not admit are refused everything.
  MonitorService(const RunRoutes* routes, bool allow_control, BearerToken token)
      : routes_(routes), allow_control_(allow_control), token_(std::move(token)) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchReports(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchEvents(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListReports(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Do(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer* request,
                               grpc::ByteBuffer* response) override;

 private:
  // Whether the caller may call at all.
  absl::Status Admit(const grpc::CallbackServerContext& context) const;
  // A stream of what `read(request)` makes a subscription of.
  template <typename Request, typename Read>
  ReportFeed::Writer* Watch(const grpc::CallbackServerContext& context,
                            const grpc::ByteBuffer& request, Read read) const;
  // Answers with the response that `fill(request, &response)` makes, if its status is OK.
  template <typename Request, typename Response, typename Fill>
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                   Fill fill) const;
  // The run to which a command goes.
  absl::StatusOr<RunRoutes::Pointer> FindForCommand(const std::string& run_id) const;

  const RunRoutes* const routes_;
  const bool allow_control_;
  const BearerToken token_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_MONITOR_SERVICE_H_
