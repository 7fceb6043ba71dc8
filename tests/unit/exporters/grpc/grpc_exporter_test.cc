// The server around the streams: addresses, unary calls, health, reflection.

#include "ptqwatch/grpc_exporter.h"

#include <dirent.h>
#include <signal.h>

#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "ptqwatch/wire/health.pb.h"
#include "ptqwatch/wire/reflection.pb.h"
#include "support/raw_client.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Eventually;
using testing::GrpcClient;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Watch;
using wire::HealthCheckRequest;
using wire::HealthCheckResponse;
using wire::ReflectionRequest;
using wire::ReflectionResponse;

grpc::internal::RpcMethod Method(const char* path, grpc::internal::RpcMethod::RpcType type,
                                 const GrpcClient& client) {
  return grpc::internal::RpcMethod(path, type, client.channel);
}

grpc::Status CheckHealth(GrpcClient& client, const std::string& service,
                         HealthCheckResponse* response) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(service);
  return grpc::internal::BlockingUnaryCall(
      client.channel.get(),
      Method("/grpc.health.v1.Health/Check", grpc::internal::RpcMethod::NORMAL_RPC, client),
      &context, request, response);
}

// A Watch of the health service.
struct HealthWatch {
  HealthWatch(const std::string& address, const std::string& service) : client(address) {
    HealthCheckRequest request;
    request.set_service(service);
    reader.reset(grpc::internal::ClientReaderFactory<HealthCheckResponse>::Create(
        client.channel.get(),
        Method("/grpc.health.v1.Health/Watch", grpc::internal::RpcMethod::SERVER_STREAMING, client),
        &context, request));
  }
  ~HealthWatch() { context.TryCancel(); }
  int Next() {
    HealthCheckResponse response;
    return reader->Read(&response) ? response.status() : -1;
  }

  GrpcClient client;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
};

struct Reflection {
  Reflection(const std::string& address, const char* path) : client(address) {
    stream.reset(
        grpc::internal::ClientReaderWriterFactory<ReflectionRequest, ReflectionResponse>::Create(
            client.channel.get(), Method(path, grpc::internal::RpcMethod::BIDI_STREAMING, client),
            &context));
  }
  ~Reflection() { context.TryCancel(); }
  ReflectionResponse Ask(const ReflectionRequest& request) {
    ReflectionResponse response;
    EXPECT_TRUE(stream->Write(request));
    EXPECT_TRUE(stream->Read(&response));
    return response;
  }

  GrpcClient client;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<ReflectionRequest, ReflectionResponse>> stream;
};

class GrpcExporterTest : public testing::GrpcExporterTest {
 protected:
  static absl::Status Refusal(GrpcOptions options) {
    return GrpcExporter::Create(std::move(options)).status();
  }
};

TEST_F(GrpcExporterTest, GivesTheStatusOfTheRun) {
  source_.SetAttempt(3);
  source_.Set([](MonitorStatus& status) {
    status.steps_total = 16000;
    status.learning_rate = 0.01;
    status.lr_phase = LrPhase::kDecay;
    status.health = Health::kDegraded;
    status.busy = true;
    status.snapshots = {7, 1, 0, 0, 0};
    status.overhead_ratio = 0.01;
    status.duty_cycle = 0.5;
  });
  source_.CountDrop("journal", "queue_full");
  CreateAndStart();
  EXPECT_EQ(exporter_->name(), "grpc");
  Watch watch(address());
  Publish(12);
  EXPECT_EQ(watch.Next(), 12);
  const v1::GetStatusResponse status = GrpcClient(address()).Status();
  EXPECT_EQ(status.run_id(), "run-1");
  EXPECT_EQ(status.attempt(), 3);
  EXPECT_EQ(status.fingerprint(), "f00d");
  EXPECT_EQ(status.device(), "cpu");
  EXPECT_EQ(status.version(), "0.1.0");
  EXPECT_EQ(status.health(), v1::HEALTH_DEGRADED);
  EXPECT_TRUE(status.busy());
  EXPECT_EQ(status.step(), 16010);
  EXPECT_EQ(status.steps_total(), 16000);
  EXPECT_EQ(status.learning_rate(), 0.01);
  EXPECT_FALSE(status.has_tokens());
  EXPECT_FALSE(status.has_training_loss_nats());
  EXPECT_EQ(status.lr_phase(), v1::LR_PHASE_DECAY);
  EXPECT_EQ(status.snapshots().size(), static_cast<size_t>(kSnapshotResults));
  EXPECT_EQ(status.snapshots().at("taken"), 7);
  EXPECT_EQ(status.snapshots().at("skipped_busy"), 1);
  EXPECT_EQ(status.overhead_ratio(), 0.01);
  EXPECT_EQ(status.duty_cycle(), 0.5);
  EXPECT_EQ(status.last_sequence(), 12);
  EXPECT_EQ(status.subscribers(), 1);
  EXPECT_EQ(status.dropped_reports(), 1);
}

TEST_F(GrpcExporterTest, RequestsSnapshots) {
  CreateAndStart();
  Publish(5);
  GrpcClient client(address());
  grpc::ClientContext context;
  v1::RequestSnapshotResponse response;
  ASSERT_TRUE(client.stub->RequestSnapshot(&context, {}, &response).ok());
  EXPECT_EQ(response.last_sequence(), 5);
  EXPECT_EQ(control_.requests, 1);
}

TEST_F(GrpcExporterTest, RequestsSlices) {
  CreateAndStart();
  GrpcClient client(address());
  v1::RequestSliceRequest request;
  request.set_method("gptq");
  request.set_bits(3);
  v1::RequestSliceResponse response;
  const auto ask = [&] {
    grpc::ClientContext context;
    return client.stub->RequestSlice(&context, request, &response);
  };
  control_.answer = 7;
  ASSERT_TRUE(ask().ok());
  EXPECT_EQ(response.number(), 7);
  EXPECT_EQ(control_.slice.method, "gptq");
  EXPECT_EQ(control_.slice.bits, 3);
  EXPECT_EQ(control_.slice.points, 21);
  request.set_points(5);
  ASSERT_TRUE(ask().ok());
  EXPECT_EQ(control_.slice.points, 5);

  control_.answer = absl::InvalidArgumentError("this run has rtn 4 \xFF");
  EXPECT_EQ(ask().error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(ask().error_message(), HasSubstr("this run has rtn 4"));
  control_.answer = absl::FailedPreconditionError("no slice");
  EXPECT_EQ(ask().error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcExporterTest, TellsHowFarASliceIs) {
  CreateAndStart();
  EXPECT_FALSE(GrpcClient(address()).Status().has_slice());
  source_.Set([](MonitorStatus& status) {
    status.slice.state = SliceState::kMeasuring;
    status.slice.number = 2;
    status.slice.request = {.method = "gptq", .bits = 3, .points = 5};
    status.slice.points_done = 7;
    status.slice.points_all = 28;
  });
  v1::SliceStatus slice = GrpcClient(address()).Status().slice();
  EXPECT_EQ(slice.state(), v1::SLICE_STATE_MEASURING);
  EXPECT_EQ(slice.number(), 2);
  EXPECT_EQ(slice.method(), "gptq");
  EXPECT_EQ(slice.bits(), 3);
  EXPECT_EQ(slice.points(), 5);
  EXPECT_EQ(slice.points_done(), 7);
  EXPECT_EQ(slice.points_all(), 28);
  source_.Set([](MonitorStatus& status) {
    status.slice.state = SliceState::kDone;
    status.slice.path = "runs/a/slice-9.json";
  });
  slice = GrpcClient(address()).Status().slice();
  EXPECT_EQ(slice.state(), v1::SLICE_STATE_DONE);
  EXPECT_EQ(slice.path(), "runs/a/slice-9.json");
  source_.Set([](MonitorStatus& status) {
    status.slice.state = SliceState::kFailed;
    status.slice.error = "disk full";
  });
  EXPECT_EQ(GrpcClient(address()).Status().slice().error(), "disk full");
}

TEST_F(GrpcExporterTest, ListsReportsPageByPage) {
  CreateAndStart();
  v1::ListReportsRequest request;
  v1::ListReportsResponse page;
  GrpcClient client(address());
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports_size(), 0);
  EXPECT_EQ(page.oldest_sequence(), 0);
  EXPECT_FALSE(page.more());

  for (int64_t sequence = 1; sequence <= 10; ++sequence) Publish(sequence, 1 << 20);
  WaitUntilPublished(10);
  std::vector<int64_t> sequences;
  int pages = 0;
  do {
    request.set_after_sequence(sequences.empty() ? 0 : sequences.back());
    const grpc::Status status = client.List(request, &page);  // within the 4 MiB of a client
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(page.reports_size(), 0);
    for (const v1::Report& report : page.reports()) sequences.push_back(report.sequence());
    ++pages;
  } while (page.more());
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(pages, 5);
  EXPECT_EQ(page.oldest_sequence(), 1);

  request.set_after_sequence(4);
  request.set_limit(1);
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports_size(), 1);
  EXPECT_EQ(page.reports(0).sequence(), 5);
  EXPECT_EQ(page.reports(0).quantization(0).layers_size(), 2);
  EXPECT_TRUE(page.more());
  request.set_without_layers(true);
  request.set_after_sequence(9);
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports(0).quantization(0).layers_size(), 0);
  EXPECT_FALSE(page.more());
}

TEST_F(GrpcExporterTest, ListsAReportThatIsLargerThanAPage) {
  CreateAndStart();
  Publish(1, 5 << 20);
  Publish(2);
  WaitUntilPublished(2);
  v1::ListReportsResponse page;
  EXPECT_EQ(GrpcClient(address()).List({}, &page).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(GrpcClient(address(), 16 << 20).List({}, &page).ok());
  EXPECT_EQ(page.reports_size(), 1);
  EXPECT_TRUE(page.more());
}

TEST_F(GrpcExporterTest, RefusesListsThatItCannotGive) {
  CreateAndStart();
  Publish(3);
  GrpcClient client(address());
  const auto refusal = [&](int64_t after, int32_t limit, const std::string& run_id = "") {
    v1::ListReportsRequest request;
    request.set_after_sequence(after);
    request.set_limit(limit);
    request.set_run_id(run_id);
    v1::ListReportsResponse page;
    return client.List(request, &page);
  };
  EXPECT_EQ(refusal(-2, 0).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refusal(0, -7).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refusal(0, -7).error_message(), HasSubstr("-7"));
  EXPECT_EQ(refusal(4, 0).error_code(), StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(refusal(4, 0).error_message(), AllOf(HasSubstr("4"), HasSubstr("3")));
  EXPECT_EQ(refusal(0, 0, "other").error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(refusal(3, 0, "run-1").ok());
}

TEST_F(GrpcExporterTest, RefusesRequestsThatAreNone) {
  CreateAndStart();
  GrpcClient client(address());
  const grpc::Slice bytes("\x08");  // a tag without its value
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall(client.channel.get(),
                                        Method("/ptqwatch.v1.MonitorService/ListReports",
                                               grpc::internal::RpcMethod::NORMAL_RPC, client),
                                        &context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ListReportsRequest"));

  v1::ListReportsRequest large;
  large.set_run_id(std::string(100'000, 'x'));
  v1::ListReportsResponse page;
  EXPECT_EQ(client.List(large, &page).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcExporterTest, IsUnavailableBeforeStart) {
  Create();
  GrpcClient client(address());
  v1::ListReportsResponse page;
  EXPECT_EQ(client.List({}, &page).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(client.List({}, &page).error_message(), "the monitor has not started");
  EXPECT_EQ(Watch(address()).Finish().error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::GetStatusResponse status;
  EXPECT_EQ(client.stub->GetStatus(&context, {}, &status).error_code(), StatusCode::UNAVAILABLE);
  Publish(1);  // goes nowhere
  ASSERT_TRUE(exporter_->Start(&source_, nullptr).ok());
  EXPECT_EQ(client.Status().last_sequence(), 0);
  grpc::ClientContext request;
  v1::RequestSnapshotResponse response;
  EXPECT_EQ(client.stub->RequestSnapshot(&request, {}, &response).error_code(),
            StatusCode::UNAVAILABLE);
  EXPECT_EQ(exporter_->Start(&source_, nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(GrpcExporterTest, TellsItsHealth) {
  Create();
  GrpcClient client(address());
  HealthCheckResponse response;
  HealthWatch watch(address(), "ptqwatch.v1.MonitorService");
  HealthWatch unknown(address(), "other");
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(unknown.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  ASSERT_TRUE(CheckHealth(client, "", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);

  ASSERT_TRUE(exporter_->Start(&source_, &control_).ok());
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  for (const char* service : {"", "ptqwatch.v1.MonitorService"}) {
    ASSERT_TRUE(CheckHealth(client, service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  EXPECT_EQ(CheckHealth(client, "other", &response).error_code(), StatusCode::NOT_FOUND);

  exporter_->Stop(std::chrono::seconds(5));
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watch.Next(), -1);
  EXPECT_EQ(watch.reader->Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(GrpcExporterTest, LimitsThoseWhoWatchItsHealth) {
  CreateAndStart();
  std::vector<std::unique_ptr<HealthWatch>> watches;
  for (int i = 0; i < 64; ++i) {
    watches.push_back(std::make_unique<HealthWatch>(address(), ""));
    ASSERT_EQ(watches.back()->Next(), HealthCheckResponse::SERVING) << i;
  }
  HealthWatch refused(address(), "");
  EXPECT_EQ(refused.Next(), -1);
  EXPECT_EQ(refused.reader->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcExporterTest, DescribesItself) {
  CreateAndStart();
  for (const char* path : {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    Reflection reflection(address(), path);
    ReflectionRequest request;
    request.set_list_services("*");
    std::set<std::string> services;
    const ReflectionResponse listed = reflection.Ask(request);
    for (const wire::Service& service : listed.services().service()) {
      services.insert(service.name());
    }
    EXPECT_THAT(services, ElementsAre("grpc.health.v1.Health", "ptqwatch.v1.MonitorService"));

    // As the standard file has it, whichever way it is asked for.
    for (const bool by_symbol : {true, false}) {
      if (by_symbol) {
        request.set_file_containing_symbol("grpc.health.v1.Health");
      } else {
        request.set_file_by_filename("grpc/health/v1/health.proto");
      }
      const ReflectionResponse health = reflection.Ask(request);
      ASSERT_EQ(health.file_descriptors().file_descriptor_proto_size(), 1);
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(health.file_descriptors().file_descriptor_proto(0)));
      google::protobuf::DescriptorPool pool;
      ASSERT_NE(pool.BuildFile(file), nullptr);
      const auto* watch = pool.FindMethodByName("grpc.health.v1.Health.Watch");
      ASSERT_NE(watch, nullptr);
      EXPECT_TRUE(watch->server_streaming());
      EXPECT_NE(pool.FindEnumTypeByName("grpc.health.v1.HealthCheckResponse.ServingStatus"),
                nullptr);
    }

    request.set_file_containing_symbol("ptqwatch.v1.MonitorService");
    std::set<std::string> files;
    const ReflectionResponse described = reflection.Ask(request);
    for (const std::string& bytes : described.file_descriptors().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      files.insert(file.name());
    }
    EXPECT_THAT(files,
                ElementsAre("ptqwatch/v1/monitor_service.proto", "ptqwatch/v1/report.proto"));

    request.set_file_by_filename("ptqwatch/v1/report.proto");
    EXPECT_EQ(reflection.Ask(request).file_descriptors().file_descriptor_proto_size(), 1);
    // Of what else is in the process nothing is told.
    for (const char* name : {"google/protobuf/descriptor.proto", "nothing.proto"}) {
      request.set_file_by_filename(name);
      const ReflectionResponse response = reflection.Ask(request);
      EXPECT_EQ(response.error().code(), StatusCode::NOT_FOUND);
      EXPECT_EQ(response.original_request().file_by_filename(), name);
    }
    request.clear_request();
    EXPECT_EQ(reflection.Ask(request).error().code(), StatusCode::NOT_FOUND);
  }
}

TEST_F(GrpcExporterTest, NamesTheAddressThatIsWrong) {
  ::testing::internal::CaptureStderr();
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                              "127.0.0.1:x", ":9465", "[::1:9465", "::1:9465", "unix:/tmp/x"}) {
    const absl::Status status = Refusal({.address = address});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + std::string(address) + "'"));
  }
  const absl::Status unknown = Refusal({.address = "no-such-host.invalid:0"});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'no-such-host.invalid'"));
  const absl::Status elsewhere = Refusal({.address = "192.0.2.1:0", .allow_remote = true});
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("192.0.2.1:0"));
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const absl::Status remote = Refusal({.address = address});
    EXPECT_EQ(remote.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(remote.message()), HasSubstr("allow_remote"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(GrpcExporterTest, NamesTheOptionThatIsWrong) {
  const auto refusal = [](GrpcOptions options) {
    const absl::Status status = Refusal(std::move(options));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.max_subscribers = 0}), HasSubstr("max_subscribers must be positive, is 0"));
  EXPECT_THAT(refusal({.queue_reports = -1}), HasSubstr("queue_reports"));
  EXPECT_THAT(refusal({.queue_reports = 5, .history_reports = 4}), HasSubstr("history_reports"));
  EXPECT_THAT(refusal({.history_bytes = 0}), HasSubstr("history_bytes"));
}

TEST_F(GrpcExporterTest, ServesOtherLoopbackAddresses) {
  for (const char* address : {"localhost:0", "127.0.0.2:0", "[::1]:0"}) {
    auto exporter = GrpcExporter::Create({.address = address});
    if (std::string(address) == "[::1]:0" && !exporter.ok()) continue;  // no IPv6 here
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    const std::string bound = (*exporter)->address();
    EXPECT_EQ(bound.substr(0, bound.rfind(':') + 1),
              std::string(address).substr(0, std::string(address).rfind(':') + 1));
    ASSERT_TRUE((*exporter)->Start(&source_, &control_).ok());
    // Numeric, since the client's resolver leaks; "localhost" may be of either family.
    std::string target = bound;
    if (bound.starts_with("localhost")) {
      const std::string port = std::to_string(testing::PortOf(bound));
      target = (testing::RawClient(bound).connected() ? "127.0.0.1:" : "[::1]:") + port;
    }
    EXPECT_EQ(GrpcClient(target).Status().run_id(), "run-1");
  }
}

TEST_F(GrpcExporterTest, ServesEveryNetworkWhereAllowed) {
  auto exporter = GrpcExporter::Create({.address = "0.0.0.0:0", .allow_remote = true});
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  ASSERT_TRUE((*exporter)->Start(&source_, &control_).ok());
  const int port = testing::PortOf((*exporter)->address());
  EXPECT_EQ(GrpcClient("127.0.0.1:" + std::to_string(port)).Status().run_id(), "run-1");
}

TEST_F(GrpcExporterTest, FailsOnABusyPortAndPrintsNothing) {
  Create();
  // Another gRPC server binds with SO_REUSEPORT, as is gRPC's default.
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  const auto other = builder.BuildAndStart();
  ASSERT_NE(other, nullptr);

  ::testing::internal::CaptureStderr();
  for (const std::string& busy : {address(), "127.0.0.1:" + std::to_string(port)}) {
    const absl::Status status = Refusal({.address = busy});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'" + busy + "'"), HasSubstr("Address already in use")));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
  other->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

TEST_F(GrpcExporterTest, PrintsNothingWhateverClientsSend) {
  ::testing::internal::CaptureStderr();
  CreateAndStart();
  {
    testing::RawClient garbage(address());
    garbage.Send(std::string(100'000, '\x7F'));
    garbage.ReadAll();
    testing::RawClient http(address());
    http.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    http.ReadAll();
    testing::RawClient gone(address());
    gone.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    gone.ResetWhenClosed();
  }
  Watch watch(address());
  Publish(1);
  EXPECT_EQ(watch.Next(), 1);
  watch.Cancel();
  EXPECT_TRUE(Eventually([&] { return Subscribers() == 0; }));
  exporter_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

// Signals that each thread of this process blocks, by its name.
std::multimap<std::string, uint64_t> BlockedSignals() {
  std::multimap<std::string, uint64_t> blocked;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream status("/proc/self/task/" + std::string(entry->d_name) + "/status");
    std::string key, name;
    while (status >> key) {
      if (key == "Name:") status >> name;
      if (key == "SigBlk:") {
        std::string mask;
        status >> mask;
        blocked.emplace(name, std::stoull(mask, nullptr, 16));
      }
    }
  }
  closedir(tasks);
  return blocked;
}

TEST_F(GrpcExporterTest, LeavesSignalsToTheThreadsOfTheTrainer) {
  CreateAndStart();
  ASSERT_EQ(GrpcClient(address()).Status().run_id(), "run-1");
  std::set<std::string> unblocked;
  for (const auto& [name, signals] : BlockedSignals()) {
    if ((signals & (uint64_t{1} << (SIGTERM - 1))) == 0) unblocked.insert(name);
  }
  EXPECT_THAT(unblocked, ElementsAre("grpc_exporter_t"));  // this thread
  EXPECT_EQ(BlockedSignals().count("ptqw-grpc"), 1u);
}

}  // namespace
}  // namespace ptqwatch
