#include "monitor_service.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "command_proto.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "ptqwatch/wire/requests.pb.h"
#include "status_proto.h"

namespace ptqwatch::internal {
namespace {

using grpc::Status;
using grpc::StatusCode;

template <typename Request>
absl::StatusOr<Request> Parse(const grpc::ByteBuffer& buffer) {
  Request request;
  grpc::Slice bytes;
  if (buffer.DumpToSingleSlice(&bytes).ok() &&
      request.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
    return request;
  }
  return absl::InvalidArgumentError(StrCat("the request is not a ", Request::descriptor()->name()));
}

// The codes of absl are those of gRPC.
Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return Status::OK;
  return Status(static_cast<StatusCode>(status.code()), ValidUtf8(Message(status)));
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Status status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

template <typename Filters>
absl::StatusOr<QuantizerFilter> ReadQuantizers(const Filters& filters) {
  QuantizerFilter quantizers;
  for (const wire::QuantizerFilter& filter : filters) {
    PTQWATCH_RETURN_IF_ERROR(quantizers.Add(filter.method(), filter.bits()));
  }
  return quantizers;
}

template <typename Kinds>
absl::StatusOr<EventFilter> ReadEvents(const Kinds& kinds, int min_severity) {
  EventFilter events;
  for (const int kind : kinds) PTQWATCH_RETURN_IF_ERROR(events.AddKind(kind));
  PTQWATCH_RETURN_IF_ERROR(events.SetMinSeverity(min_severity));
  return events;
}

absl::StatusOr<ReportFeed::Subscription> ReadWatchReports(
    const wire::WatchReportsRequest& request) {
  ReportFeed::Subscription wants;
  if (request.has_after_sequence()) wants.after_sequence = request.after_sequence();
  wants.with_layers = !request.without_layers();
  PTQWATCH_ASSIGN_OR_RETURN(wants.quantizers, ReadQuantizers(request.quantizers()));
  wants.with_events = request.with_events();
  if (request.has_after_event()) wants.after_event = request.after_event();
  PTQWATCH_ASSIGN_OR_RETURN(wants.events,
                            ReadEvents(request.event_kinds(), request.min_severity()));
  return wants;
}

absl::StatusOr<ReportFeed::Subscription> ReadWatchEvents(const wire::WatchEventsRequest& request) {
  ReportFeed::Subscription wants{.with_reports = false, .with_events = true};
  if (request.has_after_event()) wants.after_event = request.after_event();
  PTQWATCH_ASSIGN_OR_RETURN(wants.events, ReadEvents(request.kinds(), request.min_severity()));
  return wants;
}

void Fill(const RunRoute& route, v1::GetStatusResponse* response) {
  RunStatus status{.name = route.run,
                   .run = route.source->run(),
                   .monitor = route.source->status(),
                   .subscribers = route.feed.subscribers()};
  // Clients may ask for reports after this one only once the feed has it.
  status.monitor.last_sequence = route.feed.newest();
  ToProto(status, response);
}

}  // namespace

absl::Status MonitorService::Admit(const grpc::CallbackServerContext& context) const {
  if (token_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header == metadata.end()) {
    return absl::UnauthenticatedError("this server asks for a token and none was sent");
  }
  if (!token_.Admits({header->second.data(), header->second.size()})) {
    return absl::UnauthenticatedError("the token is not this server's");
  }
  return absl::OkStatus();
}

template <typename Request, typename Response, typename Fill>
grpc::ServerUnaryReactor* MonitorService::Handle(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer& request,
                                                 grpc::ByteBuffer* response, Fill fill) const {
  absl::Status status = Admit(*context);
  if (!status.ok()) return Answer(context, ToGrpc(status));
  const absl::StatusOr<Request> parsed = Parse<Request>(request);
  if (!parsed.ok()) return Answer(context, ToGrpc(parsed.status()));
  Response message;
  status = fill(*parsed, &message);
  if (status.ok()) {
    const grpc::Slice bytes(message.SerializeAsString());
    *response = grpc::ByteBuffer(&bytes, 1);
  }
  return Answer(context, ToGrpc(status));
}

template <typename Request, typename Read>
ReportFeed::Writer* MonitorService::Watch(const grpc::CallbackServerContext& context,
                                          const grpc::ByteBuffer& request, Read read) const {
  const absl::Status admitted = Admit(context);
  if (!admitted.ok()) return ReportFeed::Refused(ToGrpc(admitted));
  const auto parsed = Parse<Request>(request);
  if (!parsed.ok()) return ReportFeed::Refused(ToGrpc(parsed.status()));
  const absl::StatusOr<ReportFeed::Subscription> subscription = read(*parsed);
  if (!subscription.ok()) return ReportFeed::Refused(ToGrpc(subscription.status()));
  const absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(parsed->run_id());
  if (!route.ok()) return ReportFeed::Refused(ToGrpc(route.status()));
  return (*route)->feed.Subscribe(*subscription);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MonitorService::WatchReports(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Watch<wire::WatchReportsRequest>(*context, *request, ReadWatchReports);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MonitorService::WatchEvents(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Watch<wire::WatchEventsRequest>(*context, *request, ReadWatchEvents);
}

grpc::ServerUnaryReactor* MonitorService::ListReports(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  const absl::Status admitted = Admit(*context);
  if (!admitted.ok()) return Answer(context, ToGrpc(admitted));
  const auto parsed = Parse<wire::ListReportsRequest>(*request);
  if (!parsed.ok()) return Answer(context, ToGrpc(parsed.status()));
  const absl::StatusOr<RunRoutes::Pointer> route = routes_->Find(parsed->run_id());
  if (!route.ok()) return Answer(context, ToGrpc(route.status()));
  const absl::StatusOr<QuantizerFilter> quantizers = ReadQuantizers(parsed->quantizers());
  if (!quantizers.ok()) return Answer(context, ToGrpc(quantizers.status()));
  return Answer(context, (*route)->feed.List(parsed->after_sequence(), parsed->limit(),
                                             !parsed->without_layers(), *quantizers, response));
}

grpc::ServerUnaryReactor* MonitorService::ListRuns(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return Handle<wire::ListRunsRequest, v1::ListRunsResponse>(
      context, *request, response,
      [this](const wire::ListRunsRequest&, v1::ListRunsResponse* answer) -> absl::Status {
        for (const RunRoutes::Pointer& route : routes_->All()) Fill(*route, answer->add_runs());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Handle<wire::GetStatusRequest, v1::GetStatusResponse>(
      context, *request, response,
      [this](const wire::GetStatusRequest& parsed, v1::GetStatusResponse* answer) -> absl::Status {
        PTQWATCH_ASSIGN_OR_RETURN(const RunRoutes::Pointer route, routes_->Find(parsed.run_id()));
        Fill(*route, answer);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* MonitorService::Do(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return Handle<wire::DoRequest, v1::DoResponse>(
      context, *request, response,
      [this](wire::DoRequest parsed, v1::DoResponse* answer) -> absl::Status {
        PTQWATCH_ASSIGN_OR_RETURN(const RunRoutes::Pointer route, FindForCommand(parsed.run_id()));
        parsed.clear_run_id();
        v1::DoRequest asked;
        if (!asked.ParseFromString(parsed.SerializeAsString())) {
          return absl::InvalidArgumentError("the request is not a DoRequest");
        }
        PTQWATCH_ASSIGN_OR_RETURN(const Command command, FromProto(asked));
        PTQWATCH_ASSIGN_OR_RETURN(const int64_t number, route->control->Do(command));
        answer->set_number(number);
        return absl::OkStatus();
      });
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
