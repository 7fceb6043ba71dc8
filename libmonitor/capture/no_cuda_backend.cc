// Compiled into builds without CUDA.
#include "capture/quantize_backend.h"

namespace ptqwatch::internal {

std::unique_ptr<QuantizeBackend> MakeBackend(at::Device, const BackendNeeds&,
                                             absl::FunctionRef<absl::Status(int64_t)>) {
  return std::make_unique<HostBackend>();
}

}  // namespace ptqwatch::internal
