// The server around the calls: addresses, options, health, reflection, what it leaves alone.

#include <dirent.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/wire/health.pb.h"
#include "ptqwatch/wire/reflection.pb.h"
#include "support/raw_client.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_server_test {

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

class GrpcServerTest : public testing::GrpcExporterTest {
 protected:
  static absl::Status Refusal(GrpcOptions options) {
    options.on_failure = OnFailure::kError;
    return GrpcExporter::Create(std::move(options)).status();
  }
};

TEST_F(GrpcServerTest, TellsItsHealth) {
  Create();
  GrpcClient client(address());
  HealthCheckResponse response;
  ASSERT_TRUE(CheckHealth(client, "", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);

  ASSERT_TRUE(exporter_->Start(&source_, &control_).ok());
  for (const char* service : {"", "ptqwatch.v1.MonitorService"}) {
    ASSERT_TRUE(CheckHealth(client, service, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  EXPECT_EQ(CheckHealth(client, "other", &response).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, LeavesOutWatchOfTheHealthService) {
  // Clients must take that for "no health checking".
  CreateAndStart();
  GrpcClient client(address());
  grpc::ClientContext context;
  HealthCheckRequest request;
  HealthCheckResponse response;
  EXPECT_EQ(grpc::internal::BlockingUnaryCall(client.channel.get(),
                                              Method("/grpc.health.v1.Health/Watch",
                                                     grpc::internal::RpcMethod::NORMAL_RPC, client),
                                              &context, request, &response)
                .error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcServerTest, DescribesItself) {
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
    // The descriptors of other protos linked into the process are not listed.
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

TEST_F(GrpcServerTest, NamesTheAddressThatIsWrong) {
  ::testing::internal::CaptureStderr();
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                              "127.0.0.1:x", ":9465", "[::1:9465", "::1:9465", "unix:/tmp/x"}) {
    const absl::Status status = Refusal({.address = address});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", address, "'")));
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

TEST_F(GrpcServerTest, NamesTheOptionThatIsWrong) {
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

TEST_F(GrpcServerTest, ServesOtherLoopbackAddresses) {
  for (const char* address : {"localhost:0", "127.0.0.2:0", "[::1]:0"}) {
    auto exporter = GrpcExporter::Create({.address = address, .on_failure = OnFailure::kError});
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

TEST_F(GrpcServerTest, ServesEveryNetworkWhereAllowed) {
  auto exporter = GrpcExporter::Create({.address = "0.0.0.0:0", .allow_remote = true});
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  ASSERT_TRUE((*exporter)->Start(&source_, &control_).ok());
  const int port = testing::PortOf((*exporter)->address());
  EXPECT_EQ(GrpcClient("127.0.0.1:" + std::to_string(port)).Status().run_id(), "run-1");
}

// Each idle connection costs a descriptor of the trainer's process (CVE-2023-4785).
TEST_F(GrpcServerTest, LimitsItsConnectionsAndRecovers) {
  constexpr int kSubscribers = 4;
  constexpr int kConnections = kSubscribers + 64;
  Create({.max_subscribers = kSubscribers});
  ASSERT_TRUE(exporter_->Start(&source_, &control_).ok());
  {
    std::vector<std::unique_ptr<testing::RawClient>> idle;
    int open = 0;
    for (int i = 0; i < kConnections + 20; ++i) {
      idle.push_back(std::make_unique<testing::RawClient>(address()));
      open += idle.back()->Peek() ? 1 : 0;  // gRPC's first frame, or the end
    }
    EXPECT_EQ(open, kConnections);
  }
  EXPECT_TRUE(Eventually([&] {
    GrpcClient client(address());
    grpc::ClientContext context;
    v1::GetStatusResponse status;
    return client.stub->GetStatus(&context, {}, &status).ok();
  }));
}

std::string Frame(char type, char flags, char stream, const std::string& payload) {
  const size_t size = payload.size();
  return std::string{static_cast<char>(size >> 16),
                     static_cast<char>(size >> 8),
                     static_cast<char>(size),
                     type,
                     flags,
                     0,
                     0,
                     0,
                     stream} +
         payload;
}

// Headers that never end are kept in memory without limit by gRPC before 1.53 (CVE-2023-33953).
TEST_F(GrpcServerTest, EndsAConnectionThatSendsHeadersWithoutEnd) {
  constexpr char kSettings = 4, kHeaders = 1, kContinuation = 9;
  constexpr size_t kMostBytes = size_t{512} << 20;
  CreateAndStart();
  testing::RawClient client(address());
  client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
              Frame(kHeaders, 0, 1, ""));
  // A literal header that is never indexed: "a: xxx...".
  const std::string header = std::string(
                                 "\x00\x01"
                                 "a\x7f\xd9\x35",
                                 6) +
                             std::string(7000, 'x');
  const std::string frame = Frame(kContinuation, 0, 1, header);
  size_t sent = 0;
  while (sent < kMostBytes && client.TrySend(frame)) sent += frame.size();
  EXPECT_LT(sent, kMostBytes);
  EXPECT_EQ(GrpcClient(address()).Status().run_id(), "run-1");
}

TEST_F(GrpcServerTest, IsInertOnABusyPortByDefault) {
  CreateAndStart();
  auto second = GrpcExporter::Create({.address = address()});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->address(), "");
  EXPECT_EQ((*second)->Start(&source_, &control_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcServerTest, FailsOnABusyPortAndPrintsNothing) {
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

TEST_F(GrpcServerTest, PrintsNothingWhateverClientsSend) {
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
  // A client that resets its connection between our look at it and gRPC's.
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, ::testing::AnyOf(IsEmpty(), HasSubstr("Failed getpeername")));
  EXPECT_LE(std::count(printed.begin(), printed.end(), '\n'), 2);
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

TEST_F(GrpcServerTest, LeavesSignalsToTheThreadsOfTheTrainer) {
  CreateAndStart();
  ASSERT_EQ(GrpcClient(address()).Status().run_id(), "run-1");
  std::set<std::string> unblocked;
  for (const auto& [name, signals] : BlockedSignals()) {
    if ((signals & (uint64_t{1} << (SIGTERM - 1))) == 0) unblocked.insert(name);
  }
  EXPECT_THAT(unblocked, ElementsAre("grpc_exporter_t"));  // this thread
  EXPECT_EQ(BlockedSignals().count("ptqw-grpc"), 1u);
}

}  // namespace grpc_server_test
}  // namespace ptqwatch
