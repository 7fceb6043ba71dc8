#ifndef PTQWATCH_GRPC_REFLECTION_SERVICE_H_
#define PTQWATCH_GRPC_REFLECTION_SERVICE_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/service_type.h"
#include "ptqwatch/wire/reflection.pb.h"

namespace ptqwatch::internal {

/// grpc.reflection.v1.ServerReflection and v1alpha for one server: lists the given services and
/// describes the files of ptqwatch.v1 and grpc.health.v1. Linking gRPC's own libgrpc++_reflection
/// would turn reflection on for all servers of the process and add a pool of threads. Thread-safe.
class ReflectionService final : public grpc::Service {
 public:
  explicit ReflectionService(std::vector<std::string> services);
  ~ReflectionService() override;

  wire::ReflectionResponse Answer(const wire::ReflectionRequest& request) const;

 private:
  class Stream;
  void AddStreamingMethod(const char* path);

  google::protobuf::DescriptorPool standard_;  // grpc.health.v1
  const std::vector<std::string> services_;
  int methods_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_REFLECTION_SERVICE_H_
