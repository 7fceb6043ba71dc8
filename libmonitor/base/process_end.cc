#include "base/process_end.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/mutex.h"

namespace ptqwatch::internal {
namespace {

std::atomic<bool> process_ends{false};

struct Registry {
  const ProcessMark process;
  Registry* parents = nullptr;  // of the process that forked this one; never freed
  Mutex mutex;
  CondVar called;
  std::vector<std::pair<const void*, const std::function<void()>*>> ends ABSL_GUARDED_BY(mutex);
  const void* calling ABSL_GUARDED_BY(mutex) = nullptr;
  std::thread::id caller ABSL_GUARDED_BY(mutex);
};

// The registry of this process: a child of fork() starts with an empty one. Never destroyed,
// because static objects that own a monitor may be destroyed later.
Registry& TheRegistry() {
  static std::atomic<Registry*> current{nullptr};
  Registry* registry = current.load(std::memory_order_acquire);
  while (registry == nullptr || !registry->process.here()) {
    auto* made = new Registry;
    made->parents = registry;
    if (current.compare_exchange_strong(registry, made)) return *made;
    delete made;
  }
  return *registry;
}

void EndProcess() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  registry.caller = std::this_thread::get_id();
  // A called function may add another one.
  while (!registry.ends.empty()) {
    const auto last = registry.ends.back();
    registry.ends.pop_back();
    registry.calling = last.first;
    lock.Unlock();
    (void)Guard([&last] {
      (*last.second)();
      return absl::OkStatus();
    });
    lock.Lock();
    registry.calling = nullptr;
    registry.called.SignalAll();
  }
  process_ends.store(true, std::memory_order_relaxed);
}

}  // namespace

std::atomic<int64_t>& ProcessMark::generation() noexcept {
  static std::atomic<int64_t> generation{0};
  return generation;
}

ProcessMark::ProcessMark() : generation_(generation().load(std::memory_order_relaxed)) {
  [[maybe_unused]] static const int watched = pthread_atfork(
      nullptr, nullptr, [] { generation().fetch_add(1, std::memory_order_relaxed); });
}

AtProcessEnd::AtProcessEnd(std::function<void()> end) : end_(std::move(end)) {
  Renew();
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  registry.ends.emplace_back(this, &end_);
}

// Functions are called in reverse order of registration.
void AtProcessEnd::Renew() noexcept { (void)std::atexit(EndProcess); }

AtProcessEnd::~AtProcessEnd() {
  if (!process_.here()) return;
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  std::erase_if(registry.ends, [this](const auto& entry) { return entry.first == this; });
  while (registry.calling == this && registry.caller != std::this_thread::get_id()) {
    registry.called.Wait(registry.mutex);
  }
}

bool ProcessEnds() noexcept { return process_ends.load(std::memory_order_relaxed); }

void StayIfProcessEnds() noexcept {
  while (ProcessEnds()) pause();
}

}  // namespace ptqwatch::internal
