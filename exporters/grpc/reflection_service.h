#ifndef PTQWATCH_GRPC_REFLECTION_SERVICE_H_
#define PTQWATCH_GRPC_REFLECTION_SERVICE_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/service_type.h"
#include "ptqwatch/wire/reflection.pb.h"

namespace ptqwatch::internal {

/// grpc.reflection.v1.ServerReflection and v1alpha for one server: lists the given services and
/// describes what is in the files of ptqwatch.v1 and grpc.health.v1. A program that links gRPC's
/// own, libgrpc++_reflection, turns it on for all servers of its process, and it comes with a pool
/// of threads.
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
