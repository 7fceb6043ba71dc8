#include "base/worker.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

namespace ptqwatch::internal {
namespace worker_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Worker, RunsOneJobPerWakeAndLosesNone) {
  auto count = std::make_shared<std::atomic<int>>(0);
  auto reached = std::make_shared<std::promise<void>>();
  Worker::Hooks hooks;
  hooks.job = [count, reached] {
    if (++*count == 100) reached->set_value();
  };
  auto worker = Worker::Start(std::move(hooks));
  ASSERT_TRUE(worker.ok());
  for (int i = 0; i < 100; ++i) (*worker)->Wake();
  EXPECT_EQ(reached->get_future().wait_for(seconds(30)), std::future_status::ready);
  EXPECT_TRUE((*worker)->Stop(seconds(20)));
  EXPECT_EQ(*count, 100);
}

TEST(Worker, HasAllSignalsBlockedANameAndTheBatchPolicy) {
  struct Seen {
    bool all_blocked = true;
    std::string name;
    int policy = -1;
  };
  auto seen = std::make_shared<std::promise<Seen>>();
  Worker::Hooks hooks;
  hooks.name = "ptqwatch-test";
  hooks.job = [seen] {
    Seen what;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGHUP}) {
      what.all_blocked &= sigismember(&mask, signal) == 1;
    }
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    what.name = name;
    what.policy = sched_getscheduler(0);
    seen->set_value(what);
  };
  auto worker = Worker::Start(std::move(hooks));
  ASSERT_TRUE(worker.ok());
  (*worker)->Wake();
  const Seen what = seen->get_future().get();
  EXPECT_TRUE(what.all_blocked);
  EXPECT_EQ(what.name, "ptqwatch-test");
  EXPECT_EQ(what.policy, SCHED_BATCH);
}

TEST(Worker, LeavesTheSignalMaskOfItsCreatorAsItWas) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Worker::Hooks hooks;
  hooks.job = [] {};
  auto worker = Worker::Start(std::move(hooks));
  ASSERT_TRUE(worker.ok());
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
  }
}

TEST(Worker, IsLeftBehindWhenAJobOutlastsTheDeadline) {
  auto entered = std::make_shared<std::promise<void>>();
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  // Says when the thread has let go of the job.
  std::shared_ptr<int> token(new int(0), [ended](int* p) {
    delete p;
    ended->set_value();
  });
  Worker::Hooks hooks;
  hooks.job = [entered, gate = release->get_future().share(), token] {
    entered->set_value();
    gate.wait();
  };
  token.reset();
  auto worker = Worker::Start(std::move(hooks));
  ASSERT_TRUE(worker.ok());
  (*worker)->Wake();
  entered->get_future().wait();
  EXPECT_FALSE((*worker)->Stop(milliseconds(10)));
  EXPECT_FALSE((*worker)->Stop(milliseconds(10)));  // idempotent
  worker->reset();
  release->set_value();
  EXPECT_EQ(ended->get_future().wait_for(seconds(30)), std::future_status::ready);
}

}  // namespace worker_test
}  // namespace ptqwatch::internal
