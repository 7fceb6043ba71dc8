#include "base/thread_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "base/signals.h"

namespace ptqwatch::internal {
namespace {

constexpr int kLowerBy = 12;
constexpr int kLowest = 19;

// On Linux these apply to the calling thread, not to its process.
int Nice() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }
void SetNice(int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice); }

bool SetPolicy(int policy) {
  const sched_param parameter{};
  return sched_setscheduler(0, policy, &parameter) == 0;
}

}  // namespace

void SetThreadPriority(ThreadPriority priority) {
  // Never less nice than the thread was when the trainer made it.
  thread_local const int own = Nice();
  SetPolicy(priority == ThreadPriority::kIdle ? SCHED_IDLE : SCHED_BATCH);
  if (priority == ThreadPriority::kIdle) return;
  SetNice(priority == ThreadPriority::kLow ? std::min(own + kLowerBy, kLowest) : own);
}

bool IdlePriorityCanBeLeft() {
  static const bool can = [] {
    bool left = false;
    BlockSignals blocked;
    try {
      std::thread([&] { left = SetPolicy(SCHED_IDLE) && SetPolicy(SCHED_BATCH); }).join();
    } catch (const std::system_error&) {
    }
    return left;
  }();
  return can;
}

}  // namespace ptqwatch::internal
