#include "snapshot/generator_guard.h"

#include <cstring>
#include <mutex>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"

namespace ptqwatch::internal {
namespace {

at::Tensor State(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

GeneratorGuard::GeneratorGuard() {
  saved_.emplace_back(at::detail::getDefaultCPUGenerator(), at::Tensor());
  // Requesting a CUDA generator would initialise CUDA in a process that does not use it.
  if (at::hasCUDA()) {
    const auto devices = at::detail::getCUDAHooks().deviceCount();
    for (int device = 0; device < devices; ++device) {
      if (!at::detail::getCUDAHooks().hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) {
        continue;
      }
      saved_.emplace_back(at::globalContext().defaultGenerator(
                              at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device))),
                          at::Tensor());
    }
  }
  for (auto& [generator, state] : saved_) state = State(generator);
}

GeneratorGuard::~GeneratorGuard() {
  for (auto& [generator, state] : saved_) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

bool GeneratorGuard::Moved() const {
  for (const auto& [generator, state] : saved_) {
    const at::Tensor now = State(generator);
    if (now.nbytes() != state.nbytes() ||
        std::memcmp(now.const_data_ptr(), state.const_data_ptr(), state.nbytes()) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace ptqwatch::internal
