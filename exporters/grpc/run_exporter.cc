#include "run_exporter.h"

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/strings.h"
#include "event_proto.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "report_proto.h"

namespace ptqwatch::internal {

// One thread at a time.
class RunExporter::Serializer {
 public:
  explicit Serializer(ReportFeed* feed) : feed_(feed) {}

  // False where that failed.
  bool Publish(const AnalyzedReport& report) {
    const absl::Status status = Guard("exporter grpc", absl::StatusCode::kInternal, [&] {
      WireReport wire;
      wire.sequence = report.report.sequence;
      ToProto(report, &report_, /*with_layers=*/true);
      wire.forms = {Share(report_.SerializeAsString())};  // kFullForm
      ToProto(report, &report_, /*with_layers=*/false);
      wire.forms.push_back(Share(report_.SerializeAsString()));  // kWithoutLayersForm
      feed_->SetOver(false);
      feed_->Publish(std::move(wire));
      return absl::OkStatus();
    });
    if (!status.ok()) failed_(Severity::kError, Message(status));
    return status.ok();
  }

  void Publish(const Event& event) {
    const absl::Status status = Guard("exporter grpc", absl::StatusCode::kInternal, [&] {
      ToProto(event, &event_);
      event_.set_number(++events_);
      feed_->Publish(WireEvent{.number = events_,
                               .kind = event_.kind(),
                               .severity = event_.severity(),
                               .bytes = Share(event_.SerializeAsString())});
      feed_->SetOver(event.kind == Event::Kind::kStopped);
      return absl::OkStatus();
    });
    if (!status.ok()) failed_(Severity::kError, Message(status));
  }

 private:
  ReportFeed* const feed_;
  v1::Report report_;  // both kept for their memory
  v1::Event event_;
  int64_t events_ = 0;
  RateLimitedLog failed_;
};

RunExporter::RunExporter(RunRoutes* routes, RunRoutes::Pointer route)
    : routes_(routes),
      route_(std::move(route)),
      serializer_(std::make_unique<Serializer>(&route_->feed)) {}

RunExporter::~RunExporter() { Stop(std::chrono::seconds(2)); }

absl::Status RunExporter::Start(StatusSource* source, Control* control) {
  MutexLock lock(mutex_);
  if (route_->source != nullptr || stopped_) {
    return absl::FailedPreconditionError("the grpc exporter was started before");
  }
  route_->source = source;
  route_->control = control;
  route_->feed.Open(source);
  return absl::OkStatus();
}

void RunExporter::OnReport(std::shared_ptr<const AnalyzedReport> report) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  Announce(report->report.sequence);
  if (serializer_->Publish(*report)) return;
  if (route_->source != nullptr) route_->source->CountDrop("grpc", "exception");
}

void RunExporter::OnEvent(const Event& event) {
  MutexLock lock(mutex_);
  if (!stopped_) serializer_->Publish(event);
}

void RunExporter::Stop(std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  Refuse();
  route_->feed.Close();
  route_->feed.WaitUntilNobodyWatches(until);
  routes_->Remove(route_);
}

}  // namespace ptqwatch::internal
