// Tests of the server itself: addresses, health, reflection, limits.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "support/raw_client.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_server_test {

using grpc::StatusCode;
using grpc::internal::RpcMethod;
using internal::GrpcServer;
using ::testing::AllOf;
using testing::BufferOf;
using testing::Eventually;
using testing::GrpcClient;
using ::testing::HasSubstr;
using testing::TextOf;
using testing::Watch;

class GrpcServerTest : public testing::GrpcTest {
 protected:
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address,
                                                           const internal::ServedRuns* runs,
                                                           bool allow_remote = false) {
    return GrpcServer::Start({.listen = {.kind = "grpc",
                                         .address = address,
                                         .allow_remote = allow_remote,
                                         .allow_remote_option = "ServeOptions::allow_remote"}},
                             runs);
  }
  absl::Status Refusal(const std::string& address, bool allow_remote = false) {
    return Start(address, &runs_, allow_remote).status();
  }
};

TEST_F(GrpcServerTest, TellsItsHealth) {
  Create();
  GrpcClient client(address());
  std::string health;
  ASSERT_TRUE(client.CheckHealth("", &health).ok());
  EXPECT_EQ(health, GrpcClient::kNotServing);
  run_->Show();
  for (const char* service : {"", "ptqwatch.v1.MonitorService"}) {
    ASSERT_TRUE(client.CheckHealth(service, &health).ok());
    EXPECT_EQ(health, GrpcClient::kServing);
  }
  EXPECT_EQ(client.CheckHealth("other", &health).error_code(), StatusCode::NOT_FOUND);
  run_->End();
  ASSERT_TRUE(client.CheckHealth("", &health).ok());
  EXPECT_EQ(health, GrpcClient::kNotServing);
}

// In a ServerReflectionRequest, list_services is field 7; the response contains the names as text.
TEST_F(GrpcServerTest, DescribesItself) {
  CreateAndStart();
  GrpcClient client(address());
  grpc::ClientContext context;
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          client.channel.get(),
          RpcMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                    RpcMethod::BIDI_STREAMING, client.channel),
          &context));
  grpc::ByteBuffer answer;
  ASSERT_TRUE(stream->Write(BufferOf("\x3A\x01*")));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_THAT(TextOf(answer),
              AllOf(HasSubstr("ptqwatch.v1.MonitorService"), HasSubstr("grpc.health.v1.Health")));
  // Field 4 requests the file of a symbol, which generic clients need for each service.
  ASSERT_TRUE(stream->Write(BufferOf("\x22\x15grpc.health.v1.Health")));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_THAT(TextOf(answer), HasSubstr("grpc/health/v1/health.proto"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, NamesTheAddressThatIsWrong) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                              "127.0.0.1:x", ":9465", "[::1:9465", "::1:9465", "unix:/tmp/x"}) {
    const absl::Status status = Refusal(address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("'", address, "'")));
  }
  const absl::Status unknown = Refusal("no-such-host.invalid:0");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'no-such-host.invalid'"));
  const absl::Status elsewhere = Refusal("192.0.2.1:0", /*allow_remote=*/true);
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("192.0.2.1:0"));
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const absl::Status remote = Refusal(address);
    EXPECT_EQ(remote.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(remote.message()), HasSubstr("ServeOptions::allow_remote"));
  }
}

TEST_F(GrpcServerTest, ServesOtherLoopbackAddresses) {
  for (const char* address : {"localhost:0", "127.0.0.2:0", "[::1]:0"}) {
    const auto server = Start(address, &runs_);
    if (std::string(address) == "[::1]:0" && !server.ok()) continue;  // no IPv6 here
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string bound = (*server)->address();
    EXPECT_EQ(bound.substr(0, bound.rfind(':') + 1),
              std::string(address).substr(0, std::string(address).rfind(':') + 1));
    grpc::ClientContext context;
    v1::ListRunsResponse all;
    EXPECT_TRUE(GrpcClient(bound).stub->ListRuns(&context, {}, &all).ok()) << bound;
  }
}

TEST_F(GrpcServerTest, ServesEveryNetworkIfAllowed) {
  const auto server = Start("0.0.0.0:0", &runs_, /*allow_remote=*/true);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = testing::PortOf((*server)->address());
  EXPECT_TRUE(testing::RawClient("127.0.0.1:" + std::to_string(port)).connected());
}

TEST_F(GrpcServerTest, FailsOnABusyPort) {
  Create();
  // Another gRPC server binds with SO_REUSEPORT, the default of gRPC.
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  const auto other = builder.BuildAndStart();
  ASSERT_NE(other, nullptr);
  for (const std::string& busy : {address(), "127.0.0.1:" + std::to_string(port)}) {
    const absl::Status status = Refusal(busy);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'" + busy + "'"), HasSubstr("Address already in use")));
  }
  other->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

TEST_F(GrpcServerTest, SurvivesWhateverClientsSend) {
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
  run_->Publish(1);
  EXPECT_EQ(watch.Next(), 1);
  watch.Cancel();
  EXPECT_TRUE(Eventually([&] { return Subscribers() == 0; }));
}

// A frame of HTTP/2 for stream 1, without flags.
std::string Frame(char type, const std::string& payload) {
  const size_t size = payload.size();
  return std::string{static_cast<char>(size >> 16),
                     static_cast<char>(size >> 8),
                     static_cast<char>(size),
                     type,
                     0,
                     0,
                     0,
                     0,
                     1} +
         payload;
}

// gRPC keeps the headers of a request until the last of them.
TEST_F(GrpcServerTest, EndsConnectionsThatSendHeadersWithoutEnd) {
  CreateAndStart();
  GrpcClient other(address());
  other.Status();
  testing::RawClient flood(address());
  constexpr char kHeaders = 1, kContinuation = 9;
  flood.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9) +
             Frame(kHeaders, ""));
  // A header with the name "a" and a value of 7000 bytes, as HPACK writes it.
  const std::string header = std::string("\0\1a\x7F\xD9\x35", 6) + std::string(7000, 'x');
  const std::string frame = Frame(kContinuation, header);
  size_t sent = 0;
  while (sent < (size_t{1} << 30) && flood.TrySend(frame)) sent += frame.size();
  EXPECT_GE(sent, size_t{2} << 20);
  EXPECT_LT(sent, size_t{1} << 30);
  other.Status();
}

}  // namespace grpc_server_test
}  // namespace ptqwatch
