#include "ptqwatch/grpc_exporter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/inert_exporter.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/report_queue.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread.h"
#include "event_proto.h"
#include "grpc_server.h"
#include "health_service.h"
#include "monitor_service.h"
#include "ptqwatch/v1/monitor_service.pb.h"
#include "reflection_service.h"
#include "report_feed.h"
#include "report_proto.h"

namespace ptqwatch {
namespace {

using internal::Guard;
using internal::Mutex;
using internal::MutexLock;
using internal::StrCat;
using internal::WireEvent;
using internal::WireReport;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ReportPointer = std::shared_ptr<const AnalyzedReport>;

// Reports and events waiting to be serialised: about 0.5 s of work.
constexpr size_t kMaxWaiting = 256;
// Time for calls that are being answered when the server ends.
constexpr milliseconds kMaxLastAnswers(100);

absl::Status Check(const GrpcOptions& options) {
  const auto error = [](std::string_view name, std::string_view must, int64_t value) {
    return absl::InvalidArgumentError(
        StrCat("GrpcOptions::", name, " must ", must, ", is ", value));
  };
  if (options.max_subscribers < 1) {
    return error("max_subscribers", "be positive", options.max_subscribers);
  }
  if (options.queue_reports < 1) {
    return error("queue_reports", "be positive", options.queue_reports);
  }
  if (options.history_reports < options.queue_reports) {
    return error("history_reports", StrCat("be at least queue_reports, ", options.queue_reports),
                 options.history_reports);
  }
  if (options.history_bytes < 1) {
    return error("history_bytes", "be positive", options.history_bytes);
  }
  return absl::OkStatus();
}

// Serialises what the monitor publishes and hands it to the feed. One thread's own.
class Serializer {
 public:
  Serializer(internal::ReportFeed* feed, StatusSource* source) : feed_(feed), source_(source) {}

  void operator()(const ReportPointer& report) {
    const absl::Status status = Guard("exporter grpc", absl::StatusCode::kInternal, [&] {
      WireReport wire;
      wire.sequence = report->report.sequence;
      internal::ToProto(*report, &report_, /*with_layers=*/true);
      wire.full = grpc::Slice(report_.SerializeAsString());
      internal::ToProto(*report, &report_, /*with_layers=*/false);
      wire.without_layers = grpc::Slice(report_.SerializeAsString());
      feed_->Publish(std::move(wire));
      return absl::OkStatus();
    });
    if (status.ok()) return;
    source_->CountDrop("grpc", "exception");
    failed_(Severity::kError, internal::Message(status));
  }
  void operator()(const Event& event) {
    const absl::Status status = Guard("exporter grpc", absl::StatusCode::kInternal, [&] {
      internal::ToProto(event, &event_);
      event_.set_number(++events_);
      feed_->Publish(
          WireEvent{.number = events_, .bytes = grpc::Slice(event_.SerializeAsString())});
      return absl::OkStatus();
    });
    if (!status.ok()) failed_(Severity::kError, internal::Message(status));
  }

 private:
  internal::ReportFeed* const feed_;
  StatusSource* const source_;
  v1::Report report_;  // both kept for their memory
  v1::Event event_;
  int64_t events_ = 0;
  internal::RateLimitedLog failed_;
};

class GrpcExporterImpl final : public GrpcExporter {
 public:
  explicit GrpcExporterImpl(const GrpcOptions& options)
      : feed_({.subscribers = static_cast<size_t>(options.max_subscribers),
               .queue_reports = static_cast<size_t>(options.queue_reports),
               .history_reports = static_cast<size_t>(options.history_reports),
               .history_bytes = options.history_bytes}),
        monitor_service_(&feed_),
        health_service_({"", v1::MonitorService::service_full_name()}),
        reflection_service_({v1::MonitorService::service_full_name(), "grpc.health.v1.Health"}) {}
  ~GrpcExporterImpl() override { Stop(std::chrono::seconds(2)); }

  absl::Status Bind(const GrpcOptions& options) {
    PTQWATCH_ASSIGN_OR_RETURN(
        server_,
        internal::GrpcServer::Start({.kind = "grpc",
                                     .address = options.address,
                                     .allow_remote = options.allow_remote,
                                     .allow_remote_option = "GrpcOptions::allow_remote"},
                                    options.max_subscribers,
                                    {&monitor_service_, &health_service_, &reflection_service_}));
    address_ = server_->address();
    return absl::OkStatus();
  }

  std::string_view name() const override { return "grpc"; }
  const std::string& address() const override { return address_; }

  absl::Status Start(StatusSource* source, Control* control) override {
    MutexLock lock(mutex_);
    if (state_ != State::kBound) {
      return absl::FailedPreconditionError("the grpc exporter was started before");
    }
    monitor_service_.Start(source, control);
    feed_.Open(source);
    auto serializer = std::make_shared<Serializer>(&feed_, source);
    auto queue = Queue::Start({.thread_name = "ptqw-grpc",
                               .capacity = kMaxWaiting,
                               .handle =
                                   [serializer](const Item& item) {
                                     std::visit(*serializer, item);
                                     return true;
                                   },
                               .dropped =
                                   [source](internal::QueueDrop reason) {
                                     const bool full = reason == internal::QueueDrop::kFull;
                                     source->CountDrop("grpc", full ? "queue_full" : "stopped");
                                   }});
    if (!queue.ok()) {
      feed_.Refuse();
      return queue.status();
    }
    queue_ = *std::move(queue);
    state_ = State::kServing;
    health_service_.SetServing(true);
    return absl::OkStatus();
  }

  void OnReport(ReportPointer report) override {
    MutexLock lock(mutex_);
    if (state_ != State::kServing) return;
    feed_.Announce(report->report.sequence);
    queue_->Push(std::move(report));
  }

  void OnEvent(const Event& event) override {
    MutexLock lock(mutex_);
    if (state_ == State::kServing) queue_->Push(event);
  }

  void Stop(milliseconds deadline) override {
    const auto end = steady_clock::now() + deadline;
    // The rest of the time is for cancelling the calls of clients that do not read.
    const milliseconds for_reading = std::min<milliseconds>(deadline / 4, milliseconds(500));
    const auto drained = end - for_reading;
    {
      MutexLock lock(mutex_);
      if (state_ == State::kStopped) return;
      state_ = State::kStopped;
    }
    feed_.Refuse();
    // It serialises what is queued, and at most one report more than there is time for.
    if (queue_ != nullptr) queue_->Stop(deadline - for_reading);
    health_service_.SetServing(false);
    feed_.Close();
    feed_.WaitUntilNobodyWatches(drained);
    if (server_ == nullptr) return;
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    server_->Shutdown(std::clamp(left / 4, milliseconds(0), kMaxLastAnswers));
  }

 private:
  using Item = std::variant<ReportPointer, Event>;
  using Queue = internal::ReportQueue<Item>;
  enum class State { kBound, kServing, kStopped };

  internal::ReportFeed feed_;
  internal::MonitorService monitor_service_;
  internal::HealthService health_service_;
  internal::ReflectionService reflection_service_;
  std::unique_ptr<internal::GrpcServer> server_;  // after the services, which it uses
  std::string address_;

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kBound;
  std::unique_ptr<Queue> queue_;  // set once, before the state is kServing
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcExporter>> GrpcExporter::Create(GrpcOptions options) {
  PTQWATCH_RETURN_IF_ERROR(Check(options));
  absl::StatusOr<std::unique_ptr<GrpcExporter>> exporter =
      internal::Guard(StrCat("grpc address '", options.address, "'"), absl::StatusCode::kInternal,
                      [&]() -> absl::StatusOr<std::unique_ptr<GrpcExporter>> {
                        // The first object of gRPC starts threads, which take after their creator:
                        // so that is one of our threads, not the trainer's.
                        absl::StatusOr<std::unique_ptr<GrpcExporter>> made;
                        PTQWATCH_ASSIGN_OR_RETURN(
                            internal::Thread thread, internal::StartThread("ptqw-grpc-serve", [&] {
                              auto bound = std::make_unique<GrpcExporterImpl>(options);
                              const absl::Status status = bound->Bind(options);
                              if (status.ok()) {
                                made = std::move(bound);
                              } else {
                                made = status;
                              }
                            }));
                        thread.Join();
                        return made;
                      });
  if (exporter.ok() || !internal::BecomesInert(options.on_failure, exporter.status())) {
    return exporter;
  }
  return std::make_unique<internal::InertExporter<GrpcExporter>>("grpc", exporter.status());
}

}  // namespace ptqwatch
