#include "base/thread_priority.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace ptqwatch::internal {
namespace thread_priority_test {

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

TEST(ThreadPriority, IsNeverAboveThatOfTheTrainer) {
  const auto nice = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  std::thread([&] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10), 0);
    SetThreadPriority(ThreadPriority::kBatch);
    EXPECT_EQ(nice(), 10);
    SetThreadPriority(ThreadPriority::kLow);
    EXPECT_EQ(nice(), 19);
  }).join();
}

TEST(ThreadPriority, SaysWhetherIdleCanBeLeft) {
  std::thread([] {
    SetThreadPriority(ThreadPriority::kIdle);
    SetThreadPriority(ThreadPriority::kBatch);
    EXPECT_EQ(sched_getscheduler(0), IdlePriorityCanBeLeft() ? SCHED_BATCH : SCHED_IDLE);
  }).join();
}

}  // namespace thread_priority_test
}  // namespace ptqwatch::internal
