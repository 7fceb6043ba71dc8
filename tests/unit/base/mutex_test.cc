#include "base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace mutex_test {

using std::chrono::hours;
using std::chrono::steady_clock;

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, KeepsThreadsOutOfEachOthersUpdates) {
  constexpr int kThreads = 4;
  constexpr int kUpdates = 2000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&counter] {
      for (int k = 0; k < kUpdates; ++k) {
        MutexLock lock(counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, kThreads * kUpdates);
}

TEST(MutexLock, LetsGoForAPartOfItsScope) {
  Counter counter;
  MutexLock lock(counter.mutex);
  counter.value = 1;
  lock.Unlock();
  std::thread([&counter] {
    MutexLock other(counter.mutex);
    counter.value = 2;
  }).join();
  lock.Lock();
  EXPECT_EQ(counter.value, 2);
}

TEST(MutexLock, StaysUnlockedIfItsScopeEndsUnlocked) {
  Counter counter;
  {
    MutexLock lock(counter.mutex);
    lock.Unlock();
  }
  MutexLock again(counter.mutex);
  EXPECT_EQ(counter.value, 0);
}

TEST(CondVar, WakesAThreadThatWaits) {
  Counter counter;
  std::thread waiter([&counter] {
    MutexLock lock(counter.mutex);
    while (counter.value == 0) counter.changed.Wait(counter.mutex);
    counter.value = 2;
    counter.changed.SignalAll();
  });
  {
    MutexLock lock(counter.mutex);
    counter.value = 1;
    counter.changed.Signal();
    const auto deadline = steady_clock::now() + hours(1);
    while (counter.value != 2) ASSERT_TRUE(counter.changed.WaitUntil(counter.mutex, deadline));
  }
  waiter.join();
}

TEST(CondVar, WaitUntilEndsAtItsDeadlineWithTheMutexHeld) {
  Counter counter;
  {
    MutexLock lock(counter.mutex);
    EXPECT_FALSE(counter.changed.WaitUntil(counter.mutex, steady_clock::now() - hours(1)));
    counter.value = 1;
  }
  MutexLock again(counter.mutex);
  EXPECT_EQ(counter.value, 1);
}

bool TakeAndRelease(TimedMutex& mutex, steady_clock::time_point deadline) {
  if (!mutex.TryLockUntil(deadline)) return false;
  TimedMutexLock lock(mutex, std::adopt_lock);
  return true;
}

TEST(TimedMutex, IsTakenEvenAfterTheDeadlineIfItIsFree) {
  TimedMutex mutex;
  EXPECT_TRUE(TakeAndRelease(mutex, steady_clock::now() - hours(1)));
  EXPECT_TRUE(TakeAndRelease(mutex, steady_clock::now() - hours(1)));
}

TEST(TimedMutex, GivesUpAtTheDeadlineIfItIsHeld) {
  TimedMutex mutex;
  TimedMutexLock lock(mutex);
  bool taken = true;
  std::thread([&] { taken = TakeAndRelease(mutex, steady_clock::now() - hours(1)); }).join();
  EXPECT_FALSE(taken);
}

TEST(TimedMutex, IsHandedOverBeforeTheDeadline) {
  TimedMutex mutex;
  bool taken = false;
  std::thread other;
  {
    TimedMutexLock lock(mutex);
    other = std::thread([&] { taken = TakeAndRelease(mutex, steady_clock::now() + hours(1)); });
  }
  other.join();
  EXPECT_TRUE(taken);
}

}  // namespace mutex_test
}  // namespace ptqwatch::internal
