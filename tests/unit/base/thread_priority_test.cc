#include "base/thread_priority.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace ptqwatch::internal {
namespace {

TEST(ThreadPriority, IsThatOfTheCallingThreadAlone) {
  const int before = sched_getscheduler(0);
  std::thread([] {
    SetThreadPriority(ThreadPriority::kBatch);
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    SetThreadPriority(ThreadPriority::kIdle);
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  }).join();
  EXPECT_EQ(sched_getscheduler(0), before);
}

TEST(ThreadPriority, SaysWhetherIdleCanBeLeft) {
  std::thread([] {
    SetThreadPriority(ThreadPriority::kIdle);
    SetThreadPriority(ThreadPriority::kBatch);
    EXPECT_EQ(sched_getscheduler(0), IdlePriorityCanBeLeft() ? SCHED_BATCH : SCHED_IDLE);
  }).join();
}

}  // namespace
}  // namespace ptqwatch::internal
