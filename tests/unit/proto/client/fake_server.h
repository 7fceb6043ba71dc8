#ifndef PTQWATCH_TESTS_UNIT_PROTO_CLIENT_FAKE_SERVER_H_
#define PTQWATCH_TESTS_UNIT_PROTO_CLIENT_FAKE_SERVER_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/net_address.h"
#include "command_proto.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "report_proto.h"
#include "support/sample_report.h"

namespace ptqwatch::testing {

inline AnalyzedReport ReportNumber(int64_t sequence) {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  report.report.step = 1000 * sequence;
  return report;
}

/// A MonitorService on 127.0.0.1 with the answers that a test gives it. Thread-safe.
class FakeServer final : public v1::MonitorService::Service {
 public:
  explicit FakeServer(int port = 0, std::string run_id = "run-1") {
    status_.set_run_id(std::move(run_id));
    status_.set_attempt(1);
    status_.set_version("0.1.0");
    status_.set_device("cpu");
    status_.set_health(v1::HEALTH_OK);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &address_.port);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) ADD_FAILURE() << "cannot listen on port " << port;
    address_.host = "127.0.0.1";
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const internal::HostPort& address() const { return address_; }
  std::string target() const { return address_.ToString(); }

  void Publish(const AnalyzedReport& report, int64_t missed = 0) {
    PublishAt(report.report.sequence, report, missed);
  }
  /// The place need not be the report's own sequence.
  void PublishAt(int64_t place, const AnalyzedReport& report, int64_t missed = 0) {
    const std::lock_guard lock(mutex_);
    reports_[place] = {report, missed};
    status_.set_last_sequence(place);
    changed_.notify_all();
  }
  void PublishNumbers(int64_t first, int64_t last) {
    for (int64_t sequence = first; sequence <= last; ++sequence) Publish(ReportNumber(sequence));
  }
  template <typename Change>
  void SetStatus(Change change) {
    const std::lock_guard lock(mutex_);
    change(status_);
  }
  /// Streams end so, after the reports that are there.
  void EndStreams(grpc::Status how) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(how);
    changed_.notify_all();
  }
  /// The answer to every call but WatchReports.
  void FailCalls(grpc::Status how) {
    const std::lock_guard lock(mutex_);
    calls_fail_ = std::move(how);
  }
  /// Makes each streamed report that much larger.
  void PadReports(size_t bytes) {
    const std::lock_guard lock(mutex_);
    padding_.assign(bytes, 'x');
  }
  std::vector<v1::WatchReportsRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  /// The reports that follow a request for a snapshot.
  void AnswerSnapshotsWith(std::vector<AnalyzedReport> reports) {
    const std::lock_guard lock(mutex_);
    snapshots_ = std::move(reports);
  }
  /// The answer to MakeSlice, which changes the status as it comes: one entry a GetStatus.
  void AnswerSlicesWith(int32_t number, std::vector<v1::SliceStatus> course) {
    const std::lock_guard lock(mutex_);
    slice_number_ = number;
    slice_course_ = std::move(course);
  }
  /// The same for StartCooldown; the course begins with the first GetStatus.
  void AnswerCooldownsWith(int32_t number, std::vector<v1::CooldownStatus> course) {
    const std::lock_guard lock(mutex_);
    cooldown_number_ = number;
    cooldown_course_ = std::move(course);
  }
  /// Streamed before the reports, to those who ask for events.
  void PublishEvent(const v1::Event& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  /// In the order in which they came.
  std::vector<Command> commands() const {
    const std::lock_guard lock(mutex_);
    return commands_;
  }

 private:
  struct Entry {
    AnalyzedReport report;
    int64_t missed = 0;
  };

  grpc::Status WatchReports(grpc::ServerContext* context, const v1::WatchReportsRequest* request,
                            grpc::ServerWriter<v1::WatchReportsResponse>* writer) override {
    std::unique_lock lock(mutex_);
    requests_.push_back(*request);
    int64_t position = request->has_after_sequence()
                           ? request->after_sequence()
                           : (reports_.empty() ? 0 : reports_.rbegin()->first);
    if (request->with_events()) {
      for (const v1::Event& event : events_) {
        if (event.number() <= request->after_event()) continue;
        v1::WatchReportsResponse response;
        *response.mutable_event() = event;
        writer->Write(response);
      }
    }
    while (!context->IsCancelled()) {
      const auto next = reports_.upper_bound(position);
      if (next != reports_.end()) {
        v1::WatchReportsResponse response;
        internal::ToProto(next->second.report, response.mutable_report(),
                          !request->without_layers());
        if (!padding_.empty()) response.mutable_report()->set_fingerprint(padding_);
        response.set_missed(next->second.missed);
        position = next->first;
        lock.unlock();
        writer->Write(response);
        lock.lock();
      } else if (end_.has_value()) {
        return *end_;
      } else {
        // Cancellation does not notify.
        changed_.wait_for(lock, std::chrono::milliseconds(5));
      }
    }
    return grpc::Status::CANCELLED;
  }

  grpc::Status ListReports(grpc::ServerContext*, const v1::ListReportsRequest* request,
                           v1::ListReportsResponse* response) override {
    const std::lock_guard lock(mutex_);
    if (!calls_fail_.ok()) return calls_fail_;
    for (auto next = reports_.upper_bound(request->after_sequence()); next != reports_.end();
         ++next) {
      internal::ToProto(next->second.report, response->add_reports(), !request->without_layers());
    }
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    const std::lock_guard lock(mutex_);
    if (!slice_course_.empty() && slice_requested_) {
      *status_.mutable_slice() = slice_course_.front();
      if (slice_course_.size() > 1) slice_course_.erase(slice_course_.begin());
    }
    if (!cooldown_course_.empty()) {
      *status_.mutable_cooldown() = cooldown_course_.front();
      if (cooldown_course_.size() > 1) cooldown_course_.erase(cooldown_course_.begin());
    }
    if (calls_fail_.ok()) *response = status_;
    return calls_fail_;
  }

  grpc::Status Do(grpc::ServerContext*, const v1::DoRequest* request,
                  v1::DoResponse* response) override {
    const std::lock_guard lock(mutex_);
    if (!calls_fail_.ok()) return calls_fail_;
    const absl::StatusOr<Command> command = internal::FromProto(*request);
    if (!command.ok()) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no command");
    commands_.push_back(*command);
    if (std::holds_alternative<MakeSlice>(*command)) {
      slice_requested_ = true;
      response->set_number(slice_number_);
    } else if (std::holds_alternative<StartCooldown>(*command)) {
      response->set_number(cooldown_number_);
    } else {
      response->set_number(status_.last_sequence());
    }
    if (std::holds_alternative<TakeSnapshot>(*command)) {
      for (const AnalyzedReport& report : snapshots_) reports_[report.report.sequence] = {report};
    }
    return grpc::Status::OK;
  }

  internal::HostPort address_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Entry> reports_;
  v1::GetStatusResponse status_;
  std::optional<grpc::Status> end_;
  grpc::Status calls_fail_;
  std::vector<v1::WatchReportsRequest> requests_;
  std::vector<v1::Event> events_;
  std::vector<Command> commands_;
  std::vector<AnalyzedReport> snapshots_;
  int32_t slice_number_ = 0;
  bool slice_requested_ = false;
  int32_t cooldown_number_ = 0;
  std::vector<v1::CooldownStatus> cooldown_course_;
  std::vector<v1::SliceStatus> slice_course_;
  std::string padding_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_PROTO_CLIENT_FAKE_SERVER_H_
