#ifndef PTQWATCH_GRPC_MONITOR_SERVICE_H_
#define PTQWATCH_GRPC_MONITOR_SERVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "run_routes.h"

namespace ptqwatch::internal {

/// All calls of the service take callbacks; the two that carry reports are raw: they send the bytes
/// of the feed as they are.
using MonitorCalls = v1::MonitorService::WithRawCallbackMethod_WatchReports<
    v1::MonitorService::WithRawCallbackMethod_ListReports<
        v1::MonitorService::WithCallbackMethod_ListRuns<
            v1::MonitorService::WithCallbackMethod_GetStatus<
                v1::MonitorService::WithCallbackMethod_RequestSnapshot<
                    v1::MonitorService::WithCallbackMethod_RequestSlice<
                        v1::MonitorService::WithCallbackMethod_Pause<
                            v1::MonitorService::WithCallbackMethod_Resume<
                                v1::MonitorService::WithCallbackMethod_SetInterval<
                                    v1::MonitorService::Service>>>>>>>>>;

/// The calls of ptqwatch.v1.MonitorService: reports from the feed of the run that a request names,
/// status from its source, commands to its control.
class MonitorService final : public MonitorCalls {
 public:
  /// `routes` must outlive the server. Without `allow_control` commands are refused.
  MonitorService(const RunRoutes* routes, bool allow_control)
      : routes_(routes), allow_control_(allow_control) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchReports(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListReports(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* RequestSnapshot(grpc::CallbackServerContext* context,
                                            const v1::RequestSnapshotRequest* request,
                                            v1::RequestSnapshotResponse* response) override;
  grpc::ServerUnaryReactor* RequestSlice(grpc::CallbackServerContext* context,
                                         const v1::RequestSliceRequest* request,
                                         v1::RequestSliceResponse* response) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const v1::PauseRequest* request,
                                  v1::PauseResponse* response) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeResponse* response) override;
  grpc::ServerUnaryReactor* SetInterval(grpc::CallbackServerContext* context,
                                        const v1::SetIntervalRequest* request,
                                        v1::SetIntervalResponse* response) override;

 private:
  // The run to which a command goes.
  absl::StatusOr<RunRoutes::Pointer> FindForCommand(const std::string& run_id) const;

  const RunRoutes* const routes_;
  const bool allow_control_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_MONITOR_SERVICE_H_
