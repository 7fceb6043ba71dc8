#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpc_fixture.h"
#include "grpcpp/impl/client_unary_call.h"
#include "ptqwatch/wire/reflection.pb.h"
#include "ptqwatch/wire/requests.pb.h"

namespace ptqwatch::testing {
namespace grpc_requests_test {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::internal::RpcMethod;
using ::testing::IsEmpty;

// The type of a field as ptqwatch.wire has it.
FieldDescriptor::Type WireType(const FieldDescriptor& field) {
  if (field.type() == FieldDescriptor::TYPE_STRING) return FieldDescriptor::TYPE_BYTES;
  if (field.type() == FieldDescriptor::TYPE_ENUM) return FieldDescriptor::TYPE_INT32;
  return field.type();
}

// The server reads requests as ptqwatch.wire has them: with bytes in place of strings.
TEST(WireRequests, AreThoseOfTheServiceOnTheWire) {
  const FileDescriptor* ours = wire::GetStatusRequest::descriptor()->file();
  const FileDescriptor* v1 = v1::GetStatusRequest::descriptor()->file();
  const auto* service = v1->FindServiceByName("MonitorService");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->input_type()->name();
    EXPECT_NE(ours->FindMessageTypeByName(name), nullptr) << name;
  }
  for (int i = 0; i < ours->message_type_count(); ++i) {
    const Descriptor* read = ours->message_type(i);
    const Descriptor* theirs = v1->FindMessageTypeByName(read->name());
    ASSERT_NE(theirs, nullptr) << read->name();
    for (int f = 0; f < theirs->field_count(); ++f) {
      const FieldDescriptor* field = theirs->field(f);
      // A command stays among the unknown fields.
      if (field->real_containing_oneof() != nullptr) continue;
      const FieldDescriptor* same = read->FindFieldByNumber(field->number());
      ASSERT_NE(same, nullptr) << field->full_name();
      EXPECT_EQ(same->name(), field->name());
      EXPECT_EQ(same->has_presence(), field->has_presence()) << field->full_name();
      EXPECT_EQ(same->is_repeated(), field->is_repeated()) << field->full_name();
      EXPECT_EQ(same->type(), WireType(*field)) << field->full_name();
    }
  }
}

class GrpcRequestsTest : public GrpcExporterTest {
 protected:
  // One field of text that is not UTF-8.
  static std::string BadText(int field) {
    return {static_cast<char>(field << 3 | 2), 3, 'a', '\xff', 'b'};
  }
  static grpc::ByteBuffer Buffer(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
  grpc::Status Call(const std::string& path, const std::string& request) {
    GrpcClient client(address());
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    return grpc::internal::BlockingUnaryCall(
        client.channel.get(), RpcMethod(path.c_str(), RpcMethod::NORMAL_RPC, client.channel),
        &context, Buffer(request), &response);
  }
};

// The trainer's terminal is not for what strangers send.
TEST_F(GrpcRequestsTest, TextThatIsNotUtf8ReachesNobodysTerminal) {
  CreateAndStart();
  ::testing::internal::CaptureStderr();
  const std::string service = "/ptqwatch.v1.MonitorService/";
  for (const auto& [method, field] :
       {std::pair<const char*, int>{"GetStatus", 1}, {"ListReports", 4}, {"Do", 1}}) {
    EXPECT_FALSE(Call(service + method, BadText(field)).ok()) << method;
  }
  EXPECT_FALSE(Call("/grpc.health.v1.Health/Check", BadText(1)).ok());
  {
    GrpcClient client(address());
    grpc::ClientContext context;
    const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> stream(
        grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
            client.channel.get(),
            RpcMethod((service + "WatchReports").c_str(), RpcMethod::SERVER_STREAMING,
                      client.channel),
            &context, Buffer(BadText(3))));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  }
  {
    GrpcClient client(address());
    grpc::ClientContext context;
    const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            client.channel.get(),
            RpcMethod("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                      RpcMethod::BIDI_STREAMING, client.channel),
            &context));
    for (const int field : {1, 3, 4, 7}) {
      EXPECT_TRUE(stream->Write(Buffer(BadText(field))));
      grpc::ByteBuffer answer;
      EXPECT_TRUE(stream->Read(&answer));
    }
    context.TryCancel();
    stream->Finish();
  }
  exporter_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace grpc_requests_test
}  // namespace ptqwatch::testing
