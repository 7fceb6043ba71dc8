#ifndef PTQWATCH_GRPC_MONITOR_SERVICE_H_
#define PTQWATCH_GRPC_MONITOR_SERVICE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "feed/served_runs.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "security/check_security.h"
#include "watch_streams.h"

namespace ptqwatch::internal {

/// Implements ptqwatch.v1.MonitorService. Reports come from the feed of the run that a request
/// names; commands go to the control of that run. Thread-safe.
class MonitorService final : public v1::MonitorService::CallbackService {
 public:
  /// `runs` and `streams` must outlive the server. Refuses commands unless `allow_control` is set,
  /// and every call that `token` does not admit.
  MonitorService(const ServedRuns* runs, WatchStreams* streams, bool allow_control,
                 BearerToken token)
      : runs_(runs), streams_(streams), allow_control_(allow_control), token_(std::move(token)) {}

  grpc::ServerWriteReactor<v1::WatchReportsResponse>* WatchReports(
      grpc::CallbackServerContext* context, const v1::WatchReportsRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchEventsResponse>* WatchEvents(
      grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) override;
  grpc::ServerUnaryReactor* ListReports(grpc::CallbackServerContext* context,
                                        const v1::ListReportsRequest* request,
                                        v1::ListReportsResponse* response) override;
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* Do(grpc::CallbackServerContext* context, const v1::DoRequest* request,
                               v1::DoResponse* response) override;

 private:
  // Unauthenticated unless the call carries the token.
  absl::Status Admit(const grpc::CallbackServerContext& context) const;
  absl::StatusOr<Subscription> Read(const grpc::CallbackServerContext& context,
                                    const v1::WatchReportsRequest& request) const;
  absl::StatusOr<Subscription> Read(const grpc::CallbackServerContext& context,
                                    const v1::WatchEventsRequest& request) const;
  absl::Status List(const v1::ListReportsRequest& request, v1::ListReportsResponse* response) const;
  absl::Status CarryOut(const v1::DoRequest& request, v1::DoResponse* response) const;
  void Fill(RunView view, v1::GetStatusResponse* response) const;
  // Finishes the call with the status of `answer()`, or with that of Admit if it fails.
  template <typename Function>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Function answer) const;

  const ServedRuns* const runs_;
  WatchStreams* const streams_;
  const bool allow_control_;
  const BearerToken token_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_MONITOR_SERVICE_H_
