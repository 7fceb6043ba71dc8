#ifndef PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grpc/grpc_server.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "support/eventually.h"
#include "support/sample_report.h"
#include "unit/exporters/test_run.h"

namespace ptqwatch::testing {

inline grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}
inline std::string TextOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return {slice.begin(), slice.end()};
}

/// A client with its own connection to a server.
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
  /// On the wire, HealthCheckRequest has the service name in field 1, and the response has a
  /// status.
  static constexpr char kServing[] = "\x08\x01";
  static constexpr char kNotServing[] = "\x08\x02";
  grpc::Status CheckHealth(const std::string& service, std::string* response) {
    grpc::ClientContext context;
    std::string request;
    if (!service.empty())
      request = "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
    grpc::ByteBuffer answer;
    const grpc::internal::RpcMethod check("/grpc.health.v1.Health/Check",
                                          grpc::internal::RpcMethod::NORMAL_RPC, channel);
    const grpc::Status status = grpc::internal::BlockingUnaryCall(channel.get(), check, &context,
                                                                  BufferOf(request), &answer);
    if (status.ok()) *response = TextOf(answer);
    return status;
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::MonitorService::Stub> stub;
};

/// A stream from a server, with its own connection.
template <typename Response>
class GrpcStream {
 public:
  ~GrpcStream() {
    if (reader_ == nullptr) return;
    context_.TryCancel();
    reader_->Finish();
  }

  bool Read(Response* response) { return reader_->Read(response); }
  void Cancel() { context_.TryCancel(); }
  /// Reads on to the end and returns the final status.
  grpc::Status Finish() {
    Response response;
    while (Read(&response)) {
    }
    const grpc::Status status = reader_->Finish();
    reader_.reset();
    return status;
  }

 protected:
  explicit GrpcStream(const std::string& address, int max_message_bytes = 4 << 20)
      : client_(address, max_message_bytes) {}
  /// Unless the stream is refused, its position in the feed is fixed once this returns.
  void Open(std::unique_ptr<grpc::ClientReader<Response>> reader) {
    reader_ = std::move(reader);
    reader_->WaitForInitialMetadata();
  }
  GrpcClient client_;
  grpc::ClientContext context_;

 private:
  std::unique_ptr<grpc::ClientReader<Response>> reader_;
};

class Watch : public GrpcStream<v1::WatchReportsResponse> {
 public:
  Watch(const std::string& address, const v1::WatchReportsRequest& request) : GrpcStream(address) {
    Open(client_.stub->WatchReports(&context_, request));
  }
  explicit Watch(const std::string& address, std::optional<int64_t> after_sequence = std::nullopt,
                 bool without_layers = false, const std::string& run_id = "",
                 int max_message_bytes = 4 << 20)
      : GrpcStream(address, max_message_bytes) {
    v1::WatchReportsRequest request;
    if (after_sequence) request.set_after_sequence(*after_sequence);
    request.set_without_layers(without_layers);
    request.set_run_id(run_id);
    Open(client_.stub->WatchReports(&context_, request));
  }

  /// Returns the sequence of the next report, or -1 if the stream ends. `missed` receives the
  /// number of reports before it that were missed.
  int64_t Next(int64_t* missed = nullptr) {
    v1::WatchReportsResponse response;
    if (!Read(&response)) return -1;
    if (missed != nullptr) *missed = response.missed();
    return response.report().sequence();
  }
};

struct GrpcTestOptions {
  int max_subscribers = 64;
  internal::ReportHistory::Limits history = {};
  bool allow_control = true;
};

/// A server with one run.
class GrpcTest : public ::testing::Test {
 protected:
  void Create(const GrpcTestOptions& options = {}) {
    auto server = internal::GrpcServer::Start({.listen = {.kind = "grpc", .address = "127.0.0.1:0"},
                                               .allow_control = options.allow_control,
                                               .max_subscribers = options.max_subscribers},
                                              &runs_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    run_ = MakeRun("", options.history);
  }
  void CreateAndStart(const GrpcTestOptions& options = {}) {
    Create(options);
    run_->Show();
  }
  std::unique_ptr<TestRun> MakeRun(const std::string& name,
                                   const internal::ReportHistory::Limits& limits = {}) {
    internal::ReportForms forms;
    internal::AddProtoForms(forms);
    return std::make_unique<TestRun>(&runs_, name, forms, limits, [this] { server_->Wake(); });
  }
  const std::string& address() const { return server_->address(); }
  int32_t Subscribers() { return GrpcClient(address()).Status().subscribers(); }

  internal::ServedRuns runs_{[this] {
    if (server_ != nullptr) server_->Wake();
  }};
  std::unique_ptr<internal::GrpcServer> server_;
  std::unique_ptr<TestRun> run_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_EXPORTERS_GRPC_GRPC_FIXTURE_H_
