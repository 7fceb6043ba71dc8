#include "base/thread_priority.h"

#include <sched.h>

#include <system_error>
#include <thread>

#include "base/signals.h"

namespace ptqwatch::internal {
namespace {

bool SetPolicy(int policy) {
  const sched_param parameter{};
  return sched_setscheduler(0, policy, &parameter) == 0;
}

}  // namespace

void SetThreadPriority(ThreadPriority priority) {
  SetPolicy(priority == ThreadPriority::kIdle ? SCHED_IDLE : SCHED_BATCH);
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
