#ifndef PTQWATCH_GRPC_MONITOR_SERVICE_H_
#define PTQWATCH_GRPC_MONITOR_SERVICE_H_

#include <string>

#include "ptqwatch/exporter.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "report_feed.h"

namespace ptqwatch::internal {

/// All calls of the service take callbacks; the two that carry reports are raw: they send the bytes
/// of the feed as they are.
using MonitorCalls = v1::MonitorService::WithRawCallbackMethod_WatchReports<
    v1::MonitorService::WithRawCallbackMethod_ListReports<
        v1::MonitorService::WithCallbackMethod_GetStatus<
            v1::MonitorService::WithCallbackMethod_RequestSnapshot<
                v1::MonitorService::WithCallbackMethod_RequestSlice<
                    v1::MonitorService::WithCallbackMethod_Pause<
                        v1::MonitorService::WithCallbackMethod_Resume<
                            v1::MonitorService::WithCallbackMethod_SetInterval<
                                v1::MonitorService::Service>>>>>>>>;

/// The calls of ptqwatch.v1.MonitorService: reports from the feed, status from the source, commands
/// to the control.
class MonitorService final : public MonitorCalls {
 public:
  /// `feed` must outlive the server.
  explicit MonitorService(ReportFeed* feed) : feed_(feed) {}

  /// Before the feed opens. Both must outlive the server's calls; a null `control` makes commands
  /// answer UNAVAILABLE.
  void Start(StatusSource* source, Control* control);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchReports(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListReports(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
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
  grpc::Status CheckRun(const std::string& run_id) const;
  grpc::Status CheckControl() const;

  ReportFeed* const feed_;
  StatusSource* source_ = nullptr;  // read only while the feed serves
  Control* control_ = nullptr;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_MONITOR_SERVICE_H_
