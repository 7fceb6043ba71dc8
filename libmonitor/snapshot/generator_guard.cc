#include "snapshot/generator_guard.h"

#include <cstdint>
#include <mutex>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/core/Tensor.h"

namespace ptqwatch::internal {
namespace {

// Each twist yields 624 numbers and takes about a microsecond. The limit is 6e8 numbers, more than
// other threads draw during Monitor::Create.
constexpr int kMostTwists = 1 << 20;

at::Generator Copy(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.clone();
}

bool Same(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.next_ == b.next_ && a.left_ == b.left_ && a.state_ == b.state_;
}

// Returns whether drawing numbers takes generator `from` to the state `to`.
bool Follows(at::mt19937 from, const at::mt19937& to) {
  at::mt19937_data_pod data = from.data();
  if (data.state_ == to.data().state_) return data.next_ <= to.data().next_;
  for (int i = 0; i < kMostTwists; ++i) {
    data.left_ = 1;  // the next draw regenerates the whole state
    from.set_data(data);
    from();
    data = from.data();
    if (data.state_ == to.data().state_) return true;
  }
  return false;
}

// Returns whether the generator was seeded or reset between the two states.
bool IsSeeded(const at::Generator& before, const at::Generator& after) {
  if (before.current_seed() != after.current_seed()) return true;
  if (!before.device().is_cpu()) return after.get_offset() < before.get_offset();
  const at::mt19937 from = before.get<at::CPUGeneratorImpl>()->engine();
  const at::mt19937 to = after.get<at::CPUGeneratorImpl>()->engine();
  if (Same(from.data(), to.data())) return false;
  return Same(to.data(), at::mt19937(after.current_seed()).data()) || !Follows(from, to);
}

}  // namespace

GeneratorGuard::GeneratorGuard() {
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  // Requesting a CUDA generator would initialise CUDA in a process that does not use it.
  if (at::hasCUDA()) {
    const auto devices = at::detail::getCUDAHooks().deviceCount();
    for (int device = 0; device < devices; ++device) {
      const auto index = static_cast<c10::DeviceIndex>(device);
      if (!at::detail::getCUDAHooks().hasPrimaryContext(index)) continue;
      generators.push_back(at::globalContext().defaultGenerator(at::Device(at::kCUDA, index)));
    }
  }
  for (at::Generator& generator : generators) {
    const at::Generator now = Copy(generator);
    watched_.push_back({generator, now, now, now.clone()});
  }
}

GeneratorGuard::~GeneratorGuard() {
  for (const Watched& watched : watched_) {
    // The check may take a second, so it works on a copy and does not hold the generator's mutex.
    if (!IsSeeded(watched.before, Copy(watched.generator))) continue;
    at::Generator generator = watched.generator;
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(watched.before.get_state());
  }
}

bool GeneratorGuard::Seeded() const {
  for (const Watched& watched : watched_) {
    if (IsSeeded(watched.before, Copy(watched.generator))) return true;
  }
  return false;
}

at::Generator GeneratorGuard::On(at::Device device) {
  for (Watched& watched : watched_) {
    if (watched.generator.device() != device) continue;
    const at::Generator now = Copy(watched.generator);
    if (IsSeeded(watched.seen, now)) {
      watched.own = now.clone();
    } else if (watched.before == watched.seen) {
      watched.before = now;
    }
    watched.seen = now;
    return watched.own;
  }
  return OwnDraws::On(device);
}

}  // namespace ptqwatch::internal
