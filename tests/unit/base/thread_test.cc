#include "base/thread.h"

#include <fenv.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <future>
#include <stdexcept>
#include <string>

#include "base/usable_cores.h"
#include "ptqwatch/log.h"

namespace ptqwatch::internal {
namespace thread_test {

size_t StackBytes() {
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  size_t bytes = 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

template <typename Function>
auto OnThread(Function function, size_t stack_bytes = kStackBytes) {
  std::promise<decltype(function())> result;
  absl::StatusOr<Thread> thread = StartThread(
      "a-name-of-more-than-15", [&] { result.set_value(function()); }, stack_bytes);
  EXPECT_TRUE(thread.ok()) << thread.status();
  thread->Join();
  EXPECT_FALSE(thread->joinable());
  return result.get_future().get();
}

class StackLimit {
 public:
  explicit StackLimit(rlim_t bytes) {
    getrlimit(RLIMIT_STACK, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_STACK, &limit), 0);
  }
  ~StackLimit() { setrlimit(RLIMIT_STACK, &before_); }

 private:
  rlimit before_{};
};

TEST(Thread, HasItsNameItsSignalsBlockedAndTheBatchPolicy) {
  const auto [name, blocked, policy] = OnThread([] {
    char own[16];
    pthread_getname_np(pthread_self(), own, sizeof(own));
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return std::tuple(std::string(own), sigismember(&mask, SIGINT) == 1, sched_getscheduler(0));
  });
  EXPECT_EQ(name, "a-name-of-more-");
  EXPECT_TRUE(blocked);
  EXPECT_EQ(policy, SCHED_BATCH);
}

TEST(Thread, HasAStackThatNoLimitMakesSmall) {
  for (const rlim_t limit : {rlim_t{512} << 10, RLIM_INFINITY}) {
    const StackLimit set(limit);
    EXPECT_GE(OnThread(StackBytes), kStackBytes);
    EXPECT_GE(OnThread(StackBytes, ClosureStackBytes()), size_t{8} << 20);
  }
}

TEST(Thread, GivesClosuresAsMuchStackAsTheMainThreadHas) {
  const StackLimit set(rlim_t{32} << 20);
  EXPECT_EQ(ClosureStackBytes(), size_t{32} << 20);
}

TEST(Thread, DoesNotTakeOverFloatingPointTraps) {
  fenv_t before;
  fegetenv(&before);
  if (feenableexcept(FE_INVALID | FE_DIVBYZERO) == -1 ||
      fegetexcept() != (FE_INVALID | FE_DIVBYZERO)) {
    GTEST_SKIP() << "this processor has no traps, as most of Arm's";
  }
  const double ratio = OnThread([] {
    volatile double zero = 0;
    return zero / zero;
  });
  EXPECT_EQ(fegetexcept(), FE_INVALID | FE_DIVBYZERO) << "the caller's are as they were";
  fesetenv(&before);
  EXPECT_NE(ratio, ratio);
}

TEST(Thread, MayRunWhereverItsCreatorMay) {
  const cpu_set_t mine = UsableCpus();
  const cpu_set_t its = OnThread([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  });
  EXPECT_TRUE(CPU_EQUAL(&mine, &its));
}

TEST(Thread, LogsWhatIsThrown) {
  std::string logged;
  SetLogSink(Severity::kError, [&](Severity, std::string_view message) { logged = message; });
  auto thread = StartThread("throws", [] { throw std::runtime_error("boom"); });
  ASSERT_TRUE(thread.ok());
  thread->Join();
  thread = StartThread("throws", [] { throw 7; });
  thread->Join();
  SetLogSink(Severity::kWarning, nullptr);
  EXPECT_NE(logged.find("the thread throws ended"), std::string::npos) << logged;
}

TEST(Thread, IsDetachedWithItsHandle) {
  std::promise<void> go;
  std::promise<void> done;
  {
    auto thread = StartThread("detached", [&] {
      go.get_future().wait();
      done.set_value();
    });
    ASSERT_TRUE(thread.ok());
    Thread moved = *std::move(thread);
    EXPECT_TRUE(moved.joinable());
  }
  go.set_value();
  done.get_future().wait();
}

}  // namespace thread_test
}  // namespace ptqwatch::internal
