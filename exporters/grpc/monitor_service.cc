#include "monitor_service.h"

#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ptqwatch/version.h"
#include "report_proto.h"

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

v1::Health ToProto(Health health) {
  switch (health) {
    case Health::kStarting:
      return v1::HEALTH_STARTING;
    case Health::kOk:
      return v1::HEALTH_OK;
    case Health::kDegraded:
      return v1::HEALTH_DEGRADED;
    case Health::kStopped:
      return v1::HEALTH_STOPPED;
    case Health::kInert:
      return v1::HEALTH_INERT;
  }
  return v1::HEALTH_UNSPECIFIED;
}

absl::StatusOr<int64_t> RequestSliceOf(const v1::RequestSliceRequest& request, Control& control) {
  SliceRequest slice;
  PTQWATCH_ASSIGN_OR_RETURN(slice.method, ParseQuantizationMethod(request.method()));
  slice.bits = request.bits();
  if (request.points() != 0) slice.points = request.points();
  return control.RequestSlice(slice);
}

void Fill(const RunInfo& run, v1::GetStatusResponse* response) {
  response->set_run_id(ValidUtf8(run.run_id));
  response->set_attempt(run.attempt);
  response->set_fingerprint(ValidUtf8(run.fingerprint));
  response->set_version(PTQWATCH_VERSION_STRING);
  response->set_device(ValidUtf8(run.device));
  response->set_parameters(run.parameters);
  response->set_covered_parameters(run.covered_parameters);
}

void Fill(const SliceStatus& slice, v1::SliceStatus* response) {
  response->set_state(static_cast<v1::SliceState>(slice.state));
  response->set_number(static_cast<int32_t>(slice.number));
  if (slice.state != SliceState::kNone) {
    response->set_method(std::string(ToString(slice.request.method)));
  }
  response->set_bits(slice.request.bits);
  response->set_points(slice.request.points);
  response->set_points_done(static_cast<int32_t>(slice.points_done));
  response->set_points_all(static_cast<int32_t>(slice.points_all));
  response->set_path(ValidUtf8(slice.path));
  response->set_error(ValidUtf8(slice.error));
}

void Fill(const MonitorStatus& status, v1::GetStatusResponse* response) {
  response->set_health(ToProto(status.health));
  response->set_health_reason(ValidUtf8(status.health_reason));
  response->set_busy(status.busy);
  if (status.step) response->set_step(*status.step);
  response->set_steps_total(status.steps_total);
  response->set_last_step_unix_seconds(status.last_step_unix_seconds);
  if (std::isfinite(status.learning_rate)) response->set_learning_rate(status.learning_rate);
  if (status.tokens) response->set_tokens(*status.tokens);
  if (status.training_loss_nats && std::isfinite(*status.training_loss_nats)) {
    response->set_training_loss_nats(*status.training_loss_nats);
  }
  response->set_lr_phase(static_cast<v1::LrPhase>(status.lr_phase));
  for (int i = 0; i < kSnapshotResults; ++i) {
    const std::string name(ToString(static_cast<SnapshotResult>(i)));
    (*response->mutable_snapshots())[name] = status.snapshots[static_cast<size_t>(i)];
  }
  response->set_reports_total(status.reports_total);
  response->set_probe_failures_total(status.probe_failures_total);
  if (status.overhead_ratio) response->set_overhead_ratio(*status.overhead_ratio);
  response->set_stall_seconds_total(status.stall_seconds_total);
  response->set_duty_cycle(status.duty_cycle);
  response->set_overhead_budget_ratio(status.overhead_budget_ratio);
  response->set_plan_level_ratio(status.plan_level_ratio);
  response->set_memory_bytes(status.memory_bytes);
  response->set_memory_peak_bytes(status.memory_peak_bytes);
  response->set_memory_budget_bytes(status.memory_budget_bytes);
  int64_t dropped = 0;
  for (const auto& [exporter_and_reason, count] : status.dropped_reports) dropped += count;
  response->set_dropped_reports(dropped);
  response->set_paused(status.paused);
  response->set_every_steps(status.every);
  if (status.slice.state != SliceState::kNone) Fill(status.slice, response->mutable_slice());
}

}  // namespace

void MonitorService::Start(StatusSource* source, Control* control) {
  source_ = source;
  control_ = control;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* MonitorService::WatchReports(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  v1::WatchReportsRequest parsed;
  Status status = Parse(*request, &parsed);
  if (status.ok()) status = CheckRun(parsed.run_id());
  if (!status.ok()) return ReportFeed::Refused(std::move(status));
  ReportFeed::Subscription subscription;
  subscription.with_layers = !parsed.without_layers();
  if (parsed.has_after_sequence()) subscription.after_sequence = parsed.after_sequence();
  subscription.with_events = parsed.with_events();
  if (parsed.has_after_event()) subscription.after_event = parsed.after_event();
  return feed_->Subscribe(subscription);
}

grpc::ServerUnaryReactor* MonitorService::ListReports(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  v1::ListReportsRequest parsed;
  Status status = Parse(*request, &parsed);
  if (status.ok()) status = CheckRun(parsed.run_id());
  if (status.ok()) {
    status =
        feed_->List(parsed.after_sequence(), parsed.limit(), !parsed.without_layers(), response);
  }
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  Status status = feed_->CheckServing();
  if (status.ok()) {
    Fill(source_->run(), response);
    Fill(source_->status(), response);
    response->set_last_sequence(feed_->newest());
    response->set_subscribers(feed_->subscribers());
  }
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::RequestSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::RequestSnapshotRequest*,
                                                          v1::RequestSnapshotResponse* response) {
  Status status = CheckControl();
  if (status.ok()) {
    response->set_last_sequence(feed_->newest());
    // Read before the request: the snapshot may be of this step, but not of an earlier one.
    if (const auto step = source_->status().step) response->set_step(*step);
    control_->RequestSnapshot();
  }
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::RequestSlice(grpc::CallbackServerContext* context,
                                                       const v1::RequestSliceRequest* request,
                                                       v1::RequestSliceResponse* response) {
  Status status = CheckControl();
  if (status.ok()) {
    const absl::StatusOr<int64_t> number = RequestSliceOf(*request, *control_);
    if (number.ok()) response->set_number(static_cast<int32_t>(*number));
    status = ToGrpc(number.status());
  }
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::Pause(grpc::CallbackServerContext* context,
                                                const v1::PauseRequest*, v1::PauseResponse*) {
  Status status = CheckControl();
  if (status.ok()) control_->Pause();
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::Resume(grpc::CallbackServerContext* context,
                                                 const v1::ResumeRequest*, v1::ResumeResponse*) {
  Status status = CheckControl();
  if (status.ok()) control_->Resume();
  return Answer(context, std::move(status));
}

grpc::ServerUnaryReactor* MonitorService::SetInterval(grpc::CallbackServerContext* context,
                                                      const v1::SetIntervalRequest* request,
                                                      v1::SetIntervalResponse*) {
  Status status = CheckControl();
  if (status.ok()) status = ToGrpc(control_->SetEvery(request->every_steps()));
  return Answer(context, std::move(status));
}

Status MonitorService::CheckControl() const {
  if (Status status = feed_->CheckServing(); !status.ok()) return status;
  if (control_ != nullptr) return Status::OK;
  return Status(StatusCode::UNAVAILABLE, "this monitor takes no commands");
}

Status MonitorService::CheckRun(const std::string& run_id) const {
  if (Status status = feed_->CheckServing(); !status.ok()) return status;
  const std::string& served = source_->run().run_id;
  if (run_id.empty() || run_id == ValidUtf8(served)) return Status::OK;
  return Status(StatusCode::NOT_FOUND,
                StrCat("no run '", run_id, "' here: this is run '", ValidUtf8(served), "'"));
}

}  // namespace ptqwatch::internal
