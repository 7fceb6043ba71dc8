#include "reflection_service.h"

#include <set>
#include <string_view>
#include <utility>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
// Generated code knows where this gRPC has its callback handlers.
#include "ptqwatch/v1/monitor_service.grpc.pb.h"
#include "ptqwatch/wire/health.pb.h"

namespace ptqwatch::internal {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using wire::ReflectionRequest;
using wire::ReflectionResponse;

// Other protos linked into the process are not described.
constexpr std::string_view kServedFiles = "ptqwatch/v1/";

void SetError(grpc::StatusCode code, std::string message, ReflectionResponse* response) {
  response->mutable_error()->set_code(code);
  response->mutable_error()->set_message(std::move(message));
}

void AddFile(const FileDescriptor& file, std::set<std::string>* added,
             wire::FileDescriptors* files) {
  if (!added->insert(file.name()).second) return;
  FileDescriptorProto proto;
  file.CopyTo(&proto);
  files->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, files);
}

void SetFile(const FileDescriptor* file, const FileDescriptor* standard, const std::string& name,
             ReflectionResponse* response) {
  if (file != nullptr && !file->name().starts_with(kServedFiles)) file = nullptr;
  if (file == nullptr) file = standard;
  if (file == nullptr) {
    return SetError(grpc::StatusCode::NOT_FOUND, "no '" + name + "' here", response);
  }
  std::set<std::string> added;
  AddFile(*file, &added, response->mutable_file_descriptors());
}

// grpc/health/v1/health.proto, made from our own copy of its messages: clients that list the
// services of a server expect a description of each.
FileDescriptorProto HealthFile() {
  const std::string ours = "." + wire::HealthCheckRequest::descriptor()->file()->package() + ".";
  const std::string package = "grpc.health.v1";
  FileDescriptorProto file;
  wire::HealthCheckRequest::descriptor()->file()->CopyTo(&file);
  file.set_name("grpc/health/v1/health.proto");
  file.set_package(package);
  for (auto& message : *file.mutable_message_type()) {
    for (auto& field : *message.mutable_field()) {
      if (field.type() == FieldDescriptorProto::TYPE_BYTES) {
        field.set_type(FieldDescriptorProto::TYPE_STRING);
      }
      if (!field.type_name().starts_with(ours)) continue;
      field.set_type_name("." + package + "." + field.type_name().substr(ours.size()));
    }
  }
  auto* service = file.add_service();
  service->set_name("Health");
  for (const char* name : {"Check", "Watch"}) {
    auto* method = service->add_method();
    method->set_name(name);
    method->set_input_type("." + package + ".HealthCheckRequest");
    method->set_output_type("." + package + ".HealthCheckResponse");
    method->set_server_streaming(std::string_view(name) == "Watch");
  }
  return file;
}

}  // namespace

// Reads a request and writes its answer, again and again, one operation at a time.
class ReflectionService::Stream final
    : public grpc::ServerBidiReactor<ReflectionRequest, ReflectionResponse> {
 public:
  explicit Stream(const ReflectionService* service) : service_(service) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);  // the client has asked everything
    response_ = service_->Answer(request_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const ReflectionService* const service_;
  ReflectionRequest request_;
  ReflectionResponse response_;
};

ReflectionService::ReflectionService(std::vector<std::string> services)
    : services_(std::move(services)) {
  standard_.BuildFile(HealthFile());
  AddStreamingMethod("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
  AddStreamingMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
}

ReflectionService::~ReflectionService() = default;

void ReflectionService::AddStreamingMethod(const char* path) {
  // As the code generated for a service does.
  AddMethod(new grpc::internal::RpcServiceMethod(path, grpc::internal::RpcMethod::BIDI_STREAMING,
                                                 nullptr));
  MarkMethodCallback(methods_++,
                     new grpc::internal::CallbackBidiHandler<ReflectionRequest, ReflectionResponse>(
                         [this](grpc::CallbackServerContext*) { return new Stream(this); }));
}

ReflectionResponse ReflectionService::Answer(const ReflectionRequest& request) const {
  ReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.request_case()) {
    case ReflectionRequest::kFileByFilename: {
      const std::string& name = request.file_by_filename();
      SetFile(pool.FindFileByName(name), standard_.FindFileByName(name), name, &response);
      break;
    }
    case ReflectionRequest::kFileContainingSymbol: {
      const std::string& name = request.file_containing_symbol();
      SetFile(pool.FindFileContainingSymbol(name), standard_.FindFileContainingSymbol(name), name,
              &response);
      break;
    }
    case ReflectionRequest::kListServices:
      for (const std::string& name : services_) {
        response.mutable_services()->add_service()->set_name(name);
      }
      break;
    case ReflectionRequest::REQUEST_NOT_SET:
      // The request is about extensions, which proto3 does not have.
      SetError(grpc::StatusCode::NOT_FOUND, "no extensions here", &response);
      break;
  }
  return response;
}

}  // namespace ptqwatch::internal
