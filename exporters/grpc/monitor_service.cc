#include "monitor_service.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "status_proto.h"

namespace ptqwatch::internal {
namespace {

using grpc::Status;
using grpc::StatusCode;

template <typename Message>
Status Parse(const grpc::ByteBuffer& buffer, Message* message) {
  grpc::Slice bytes;
  if (buffer.DumpToSingleSlice(&bytes).ok() &&
      message->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
    return Status::OK;
  }
  return Status(StatusCode::INVALID_ARGUMENT,
                StrCat("the request is not a ", message->GetTypeName()));
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Status status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

// The codes of absl are those of gRPC.
Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return Status::OK;
  return Status(static_cast<StatusCode>(status.code()), ValidUtf8(Message(status)));
}

absl::StatusOr<int64_t> RequestSliceOf(const v1::RequestSliceRequest& request, Control& control) {
  SliceRequest slice;
  PTQWATCH_ASSIGN_OR_RETURN(slice.method, ParseQuantizationMethod(request.method()));
  slice.bits = request.bits();
  if (request.points() != 0) slice.points = request.points();
  return control.RequestSlice(slice);
}

void Fill(const RunRoute& route, v1::GetStatusResponse* response) {
  ToProto(route.source->run(), route.source->status(), response);
  response->set_run(ValidUtf8(route.run));
  response->set_last_sequence(route.feed.newest());
  response->set_subscribers(route.feed.subscribers());
}

}  // namespace

grpc::ServerUnaryReactor* MonitorService::ListRuns(grpc::CallbackServerContext* context,
                                                   const v1::ListRunsRequest*,
                                                   v1::ListRunsResponse* response) {
  for (const RunRoutes::Pointer& route : routes_->All()) Fill(*route, response->add_runs());
  return Answer(context, Status::OK);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MonitorService::WatchReports(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  v1::WatchReportsRequest parsed;
  if (Status status = Parse(*request, &parsed); !status.ok()) {
    return ReportFeed::Refused(std::move(status));
  }
  const absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(parsed.run_id());
  if (!route.ok()) return ReportFeed::Refused(ToGrpc(route.status()));
  ReportFeed::Subscription subscription;
  subscription.with_layers = !parsed.without_layers();
  if (parsed.has_after_sequence()) subscription.after_sequence = parsed.after_sequence();
  subscription.with_events = parsed.with_events();
  if (parsed.has_after_event()) subscription.after_event = parsed.after_event();
  return (*route)->feed.Subscribe(subscription);
}

grpc::ServerUnaryReactor* MonitorService::ListReports(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  v1::ListReportsRequest parsed;
  if (Status status = Parse(*request, &parsed); !status.ok()) {
    return Answer(context, std::move(status));
  }
  const absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(parsed.run_id());
  if (!route.ok()) return Answer(context, ToGrpc(route.status()));
  return Answer(context, (*route)->feed.List(parsed.after_sequence(), parsed.limit(),
                                             !parsed.without_layers(), response));
}

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest* request,
                                                    v1::GetStatusResponse* response) {
  const absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(request->run_id());
  if (route.ok()) Fill(**route, response);
  return Answer(context, ToGrpc(route.status()));
}

grpc::ServerUnaryReactor* MonitorService::RequestSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::RequestSnapshotRequest* request,
                                                          v1::RequestSnapshotResponse* response) {
  const absl::StatusOr<RunRoutes::Pointer> route = FindForCommand(request->run_id());
  if (!route.ok()) return Answer(context, ToGrpc(route.status()));
  response->set_last_sequence((*route)->feed.newest());
  // Read before the request: the snapshot may be of this step, but not of an earlier one.
  if (const auto step = (*route)->source->status().step) response->set_step(*step);
  return Answer(context, ToGrpc((*route)->control->RequestSnapshot()));
}

grpc::ServerUnaryReactor* MonitorService::RequestSlice(grpc::CallbackServerContext* context,
                                                       const v1::RequestSliceRequest* request,
                                                       v1::RequestSliceResponse* response) {
  const absl::StatusOr<RunRoutes::Pointer> route = FindForCommand(request->run_id());
  if (!route.ok()) return Answer(context, ToGrpc(route.status()));
  const absl::StatusOr<int64_t> number = RequestSliceOf(*request, *(*route)->control);
  if (number.ok()) response->set_number(static_cast<int32_t>(*number));
  return Answer(context, ToGrpc(number.status()));
}

grpc::ServerUnaryReactor* MonitorService::Pause(grpc::CallbackServerContext* context,
                                                const v1::PauseRequest* request,
                                                v1::PauseResponse*) {
  const absl::StatusOr<RunRoutes::Pointer> route = FindForCommand(request->run_id());
  return Answer(context, ToGrpc(route.ok() ? (*route)->control->Pause() : route.status()));
}

grpc::ServerUnaryReactor* MonitorService::Resume(grpc::CallbackServerContext* context,
                                                 const v1::ResumeRequest* request,
                                                 v1::ResumeResponse*) {
  const absl::StatusOr<RunRoutes::Pointer> route = FindForCommand(request->run_id());
  return Answer(context, ToGrpc(route.ok() ? (*route)->control->Resume() : route.status()));
}

grpc::ServerUnaryReactor* MonitorService::SetInterval(grpc::CallbackServerContext* context,
                                                      const v1::SetIntervalRequest* request,
                                                      v1::SetIntervalResponse*) {
  const absl::StatusOr<RunRoutes::Pointer> route = FindForCommand(request->run_id());
  return Answer(context, ToGrpc(route.ok() ? (*route)->control->SetEvery(request->every_steps())
                                           : route.status()));
}

absl::StatusOr<RunRoutes::Pointer> MonitorService::FindForCommand(const std::string& run_id) const {
  if (!allow_control_) {
    return absl::PermissionDeniedError(
        "this server takes no commands (allow_control is off); on the run's machine they can be "
        "given by its run directory: ptqwatch snapshot RUN_DIR");
  }
  absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(run_id);
  if (route.ok() && (*route)->control == nullptr) {
    return absl::UnavailableError("this run takes no commands");
  }
  return route;
}

}  // namespace ptqwatch::internal
