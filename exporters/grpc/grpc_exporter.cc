#include "ptqwatch/grpc_exporter.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/worker.h"
#include "grpc_server.h"
#include "health_service.h"
#include "monitor_service.h"
#include "ptqwatch/v1/report.pb.h"
#include "reflection_service.h"
#include "report_feed.h"
#include "report_proto.h"

namespace ptqwatch {
namespace {

using internal::StrCat;
using internal::WireReport;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ReportPointer = std::shared_ptr<const AnalyzedReport>;

// Reports that wait to be serialised: half a second's work or so, if ever so many come at once.
constexpr size_t kMaxWaiting = 256;
// For calls that are being answered when the server ends.
constexpr milliseconds kLastAnswers(100);

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
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kBound) {
      return absl::FailedPreconditionError("the grpc exporter was started before");
    }
    source_ = source;
    monitor_service_.Start(source, control);
    feed_.Open(source);
    try {
      internal::BlockSignals block;
      thread_ = std::thread([this] { Dispatch(); });
    } catch (const std::system_error& error) {
      feed_.Refuse();
      return absl::ResourceExhaustedError(
          StrCat("cannot start the grpc exporter's thread: ", error.what()));
    }
    state_ = State::kServing;
    health_service_.SetServing(true);
    return absl::OkStatus();
  }

  void OnReport(ReportPointer report) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kServing) return;
    feed_.Announce(report->report.sequence);
    if (waiting_.size() >= kMaxWaiting) {
      waiting_.pop_front();
      source_->CountDrop("grpc", "queue_full");
    }
    waiting_.push_back(std::move(report));
    changed_.notify_one();
  }

  void Stop(milliseconds deadline) override {
    const auto end = steady_clock::now() + deadline;
    // What is left then is for cancelling the calls of those who do not read.
    const auto drained = end - std::min<milliseconds>(deadline / 4, milliseconds(500));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (state_ == State::kStopped) return;
      state_ = State::kStopped;
    }
    feed_.Refuse();
    StopDispatching(drained);
    health_service_.Close();
    feed_.Close();
    feed_.WaitUntilNobodyWatches(drained);
    if (server_ == nullptr) return;
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    server_->Shutdown(std::clamp(left / 4, milliseconds(0), kLastAnswers));
  }

 private:
  void StopDispatching(steady_clock::time_point until) {
    if (!thread_.joinable()) return;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.notify_all();
      // It serialises what waits; one report more than there is time for, at most.
      if (!changed_.wait_until(lock, until, [this] { return dispatched_; })) {
        for (size_t i = 0; i < waiting_.size(); ++i) source_->CountDrop("grpc", "stopped");
        waiting_.clear();
      }
    }
    thread_.join();
  }

  void Dispatch() {
    pthread_setname_np(pthread_self(), "ptqw-grpc");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return state_ == State::kStopped || !waiting_.empty(); });
      if (waiting_.empty()) break;
      const ReportPointer report = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Publish(*report);
      lock.lock();
    }
    dispatched_ = true;
    changed_.notify_all();
  }

  void Publish(const AnalyzedReport& report) {
    try {
      WireReport wire;
      wire.sequence = report.report.sequence;
      internal::ToProto(report, &message_, /*with_layers=*/true);
      wire.full = grpc::Slice(message_.SerializeAsString());
      internal::ToProto(report, &message_, /*with_layers=*/false);
      wire.without_layers = grpc::Slice(message_.SerializeAsString());
      feed_.Publish(std::move(wire));
    } catch (const std::exception& error) {
      source_->CountDrop("grpc", "exception");
      failed_(Severity::kError, StrCat("exporter grpc: ", error.what()));
    }
  }

  internal::ReportFeed feed_;
  internal::MonitorService monitor_service_;
  internal::HealthService health_service_;
  internal::ReflectionService reflection_service_;
  std::unique_ptr<internal::GrpcServer> server_;  // after the services, which it uses
  std::string address_;

  StatusSource* source_ = nullptr;  // set before the thread starts
  v1::Report message_;              // the dispatching thread's, kept for its memory
  internal::RateLimitedLog failed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  enum class State { kBound, kServing, kStopped } state_ = State::kBound;
  std::deque<ReportPointer> waiting_;
  bool dispatched_ = false;  // nothing more will be published
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcExporter>> GrpcExporter::Create(GrpcOptions options) {
  PTQWATCH_RETURN_IF_ERROR(Check(options));
  return internal::Guard(StrCat("grpc address '", options.address, "'"),
                         absl::StatusCode::kInternal,
                         [&]() -> absl::StatusOr<std::unique_ptr<GrpcExporter>> {
                           // The first object of gRPC starts threads; signals sent to the process
                           // are for the trainer's.
                           internal::BlockSignals block;
                           auto exporter = std::make_unique<GrpcExporterImpl>(options);
                           PTQWATCH_RETURN_IF_ERROR(exporter->Bind(options));
                           return exporter;
                         });
}

}  // namespace ptqwatch
