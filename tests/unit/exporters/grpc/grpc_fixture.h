#ifndef PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "support/eventually.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"

namespace ptqwatch::testing {

class FakeControl final : public Control {
 public:
  absl::StatusOr<int64_t> Do(const Command& command) override {
    commands.push_back(command);
    return answer;
  }
  std::vector<Command> commands;
  absl::StatusOr<int64_t> answer = 1;
};

/// A connection of its own to an exporter.
class GrpcClient {
 public:
  explicit GrpcClient(const std::string& address, int max_message_bytes = 4 << 20) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(max_message_bytes);
    channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    stub = v1::MonitorService::NewStub(channel);
  }
  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    const grpc::Status status = stub->GetStatus(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Do(const v1::DoRequest& request, v1::DoResponse* response) {
    grpc::ClientContext context;
    return stub->Do(&context, request, response);
  }
  grpc::Status List(const v1::ListReportsRequest& request, v1::ListReportsResponse* response) {
    grpc::ClientContext context;
    return stub->ListReports(&context, request, response);
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::MonitorService::Stub> stub;
};

/// A client that watches. It has its place in the feed once it is made (where it is not refused).
class Watch {
 public:
  Watch(const std::string& address, const v1::WatchReportsRequest& request) : client_(address) {
    reader_ = client_.stub->WatchReports(&context_, request);
    reader_->WaitForInitialMetadata();
  }
  explicit Watch(const std::string& address, std::optional<int64_t> after_sequence = std::nullopt,
                 bool without_layers = false, const std::string& run_id = "",
                 int max_message_bytes = 4 << 20)
      : client_(address, max_message_bytes) {
    v1::WatchReportsRequest request;
    if (after_sequence) request.set_after_sequence(*after_sequence);
    request.set_without_layers(without_layers);
    request.set_run_id(run_id);
    reader_ = client_.stub->WatchReports(&context_, request);
    reader_->WaitForInitialMetadata();
  }
  ~Watch() {
    if (reader_ == nullptr) return;
    context_.TryCancel();
    reader_->Finish();
  }

  bool Read(v1::WatchReportsResponse* response) { return reader_->Read(response); }
  /// Its sequence, and in `missed` the number before it; -1 where the stream ends instead.
  int64_t Next(int64_t* missed = nullptr) {
    v1::WatchReportsResponse response;
    if (!Read(&response)) return -1;
    if (missed != nullptr) *missed = response.missed();
    return response.report().sequence();
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    v1::WatchReportsResponse response;
    while (Read(&response)) {
    }
    const grpc::Status status = reader_->Finish();
    reader_.reset();
    return status;
  }

 private:
  GrpcClient client_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchReportsResponse>> reader_;
};

class GrpcExporterTest : public ::testing::Test {
 protected:
  void Create(GrpcOptions options = {}) {
    options.address = "127.0.0.1:0";
    options.allow_control = allow_control_;
    auto exporter = GrpcExporter::Create(options);
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    exporter_ = *std::move(exporter);
  }
  void CreateAndStart(GrpcOptions options = {}) {
    Create(std::move(options));
    ASSERT_TRUE(exporter_->Start(&source_, &control_).ok());
  }
  const std::string& address() const { return exporter_->address(); }

  /// `padding` bytes more than it takes otherwise, in both forms.
  void Publish(int64_t sequence, size_t padding = 0) {
    AnalyzedReport report = SampleReport();
    report.report.sequence = sequence;
    report.report.step = 100 * sequence;
    report.report.probe_status_detail = std::string(padding, 'x');
    exporter_->OnReport(std::make_shared<const AnalyzedReport>(std::move(report)));
  }
  /// Waits until the reports up to this one are in the history.
  void WaitUntilPublished(int64_t sequence) {
    GrpcClient client(address());
    v1::ListReportsRequest request;
    request.set_after_sequence(sequence - 1);
    request.set_without_layers(true);
    ASSERT_TRUE(Eventually([&] {
      v1::ListReportsResponse response;
      return client.List(request, &response).ok() && response.reports_size() > 0;
    }));
  }
  int32_t Subscribers() { return GrpcClient(address()).Status().subscribers(); }

  bool allow_control_ = true;
  FakeStatusSource source_;
  FakeControl control_;
  std::unique_ptr<GrpcExporter> exporter_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_
