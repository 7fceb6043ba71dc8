#include "monitor_service.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "command_proto.h"
#include "status_proto.h"

namespace ptqwatch::internal {
namespace {

ReportForm ProtoForm(bool without_layers) {
  return without_layers ? ReportForm::kProtoWithoutLayers : ReportForm::kProto;
}

absl::Status CheckNotNegative(const char* field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, " must not be negative, is ", value));
}

absl::Status CheckReached(const char* field, int64_t value, const char* what, int64_t newest) {
  PTQWATCH_RETURN_IF_ERROR(CheckNotNegative(field, value));
  if (value <= newest) return absl::OkStatus();
  return absl::OutOfRangeError(
      StrCat(field, " ", value, " is beyond the newest ", what, ", ", newest));
}

}  // namespace

absl::Status MonitorService::Admit(const grpc::CallbackServerContext& context) const {
  if (token_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header == metadata.end()) {
    return absl::UnauthenticatedError("this server requires a token, but none was sent");
  }
  if (!token_.Admits({header->second.data(), header->second.size()})) {
    return absl::UnauthenticatedError("the token is not this server's");
  }
  return absl::OkStatus();
}

template <typename Function>
grpc::ServerUnaryReactor* MonitorService::Answer(grpc::CallbackServerContext* context,
                                                 Function answer) const {
  absl::Status status = Admit(*context);
  if (status.ok()) status = answer();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::StatusOr<Subscription> MonitorService::Read(const grpc::CallbackServerContext& context,
                                                  const v1::WatchReportsRequest& request) const {
  PTQWATCH_RETURN_IF_ERROR(Admit(context));
  PTQWATCH_ASSIGN_OR_RETURN(const RunView view, runs_->Find(request.run_id()));
  PTQWATCH_ASSIGN_OR_RETURN(auto passes,
                            EventFilter(request.event_kinds(), request.min_severity()));
  PTQWATCH_ASSIGN_OR_RETURN(auto quantizers, QuantizerFilter::Make(request.quantizers()));
  Subscription wants;
  wants.run = view.run;
  wants.wants = {.form = ProtoForm(request.without_layers()),
                 .events = request.with_events(),
                 .passes = std::move(passes)};
  wants.position = view.run->feed.newest();
  wants.quantizers = std::move(quantizers);
  if (request.has_after_sequence()) {
    PTQWATCH_RETURN_IF_ERROR(CheckReached("after_sequence", request.after_sequence(), "report",
                                          wants.position.sequence));
    wants.position.sequence = request.after_sequence();
  }
  if (request.has_after_event()) {
    PTQWATCH_RETURN_IF_ERROR(CheckNotNegative("after_event", request.after_event()));
    wants.position.event = request.after_event();
  }
  // Before the first report, the sequence before "the next one" is not known.
  if (request.has_after_sequence() || wants.position.sequence > 0) {
    wants.last = wants.position.sequence;
  }
  return wants;
}

absl::StatusOr<Subscription> MonitorService::Read(const grpc::CallbackServerContext& context,
                                                  const v1::WatchEventsRequest& request) const {
  PTQWATCH_RETURN_IF_ERROR(Admit(context));
  PTQWATCH_ASSIGN_OR_RETURN(const RunView view, runs_->Find(request.run_id()));
  PTQWATCH_ASSIGN_OR_RETURN(auto passes, EventFilter(request.kinds(), request.min_severity()));
  Subscription wants;
  wants.run = view.run;
  wants.wants = {.reports = false, .passes = std::move(passes)};
  wants.position = view.run->feed.newest();
  if (request.has_after_event()) {
    PTQWATCH_RETURN_IF_ERROR(
        CheckReached("after_event", request.after_event(), "event", wants.position.event));
    wants.position.event = request.after_event();
  }
  return wants;
}

grpc::ServerWriteReactor<v1::WatchReportsResponse>* MonitorService::WatchReports(
    grpc::CallbackServerContext* context, const v1::WatchReportsRequest* request) {
  return streams_->WatchReports(Read(*context, *request));
}

grpc::ServerWriteReactor<v1::WatchEventsResponse>* MonitorService::WatchEvents(
    grpc::CallbackServerContext* context, const v1::WatchEventsRequest* request) {
  return streams_->WatchEvents(Read(*context, *request));
}

absl::Status MonitorService::List(const v1::ListReportsRequest& request,
                                  v1::ListReportsResponse* response) const {
  PTQWATCH_ASSIGN_OR_RETURN(const RunView view, runs_->Find(request.run_id()));
  PTQWATCH_ASSIGN_OR_RETURN(const QuantizerFilter quantizers,
                            QuantizerFilter::Make(request.quantizers()));
  PTQWATCH_RETURN_IF_ERROR(CheckNotNegative("limit", request.limit()));
  const RunFeed& feed = view.run->feed;
  PTQWATCH_RETURN_IF_ERROR(
      CheckReached("after_sequence", request.after_sequence(), "report", feed.newest().sequence));
  const RunFeed::Page page =
      feed.List(request.after_sequence(), request.limit(), ProtoForm(request.without_layers()));
  for (const SharedBytes& bytes : page.reports) {
    v1::Report* report = response->add_reports();
    report->ParseFromString(*bytes);
    quantizers.Apply(report);
  }
  response->set_more(page.more);
  response->set_oldest_sequence(page.oldest);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* MonitorService::ListReports(grpc::CallbackServerContext* context,
                                                      const v1::ListReportsRequest* request,
                                                      v1::ListReportsResponse* response) {
  return Answer(context, [&] { return List(*request, response); });
}

void MonitorService::Fill(RunView view, v1::GetStatusResponse* response) const {
  view.status.subscribers = streams_->CountOf(*view.run);
  ToProto(view.status, response);
}

grpc::ServerUnaryReactor* MonitorService::ListRuns(grpc::CallbackServerContext* context,
                                                   const v1::ListRunsRequest* /*request*/,
                                                   v1::ListRunsResponse* response) {
  return Answer(context, [&] {
    for (RunView& view : runs_->Open()) Fill(std::move(view), response->add_runs());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest* request,
                                                    v1::GetStatusResponse* response) {
  return Answer(context, [&]() -> absl::Status {
    PTQWATCH_ASSIGN_OR_RETURN(RunView view, runs_->Find(request->run_id()));
    Fill(std::move(view), response);
    return absl::OkStatus();
  });
}

absl::Status MonitorService::CarryOut(const v1::DoRequest& request,
                                      v1::DoResponse* response) const {
  if (!allow_control_) {
    return absl::PermissionDeniedError(
        "this server takes no commands (allow_control is off); on the run's machine, send them "
        "through its run directory: ptqwatch snapshot RUN_DIR");
  }
  PTQWATCH_ASSIGN_OR_RETURN(const RunView view, runs_->Find(request.run_id()));
  if (view.run->control == nullptr) return absl::UnavailableError("this run takes no commands");
  PTQWATCH_ASSIGN_OR_RETURN(const Command command, FromProto(request));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t number, view.run->control->Do(command));
  response->set_number(number);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* MonitorService::Do(grpc::CallbackServerContext* context,
                                             const v1::DoRequest* request,
                                             v1::DoResponse* response) {
  return Answer(context, [&] { return CarryOut(*request, response); });
}

}  // namespace ptqwatch::internal
