#include "base/process_end.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace ptqwatch::internal {
namespace process_end_test {

// The exit status of a child that runs `body` and then calls exit(3); 100 if it was killed.
template <typename Body>
int ExitOfChild(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

TEST(ProcessMark, KnowsAChild) {
  const ProcessMark mark;
  EXPECT_TRUE(mark.here());
  EXPECT_EQ(ExitOfChild([&] { _exit(mark.here() ? 1 : 0); }), 0);
  EXPECT_EQ(ExitOfChild([] { _exit(ProcessMark().here() ? 0 : 1); }), 0) << "made in the child";
  EXPECT_TRUE(mark.here());
}

TEST(AtProcessEnd, IsCalledByExitBeforeTheProcessEnds) {
  EXPECT_EQ(ExitOfChild([] { new AtProcessEnd([] { _exit(ProcessEnds() ? 8 : 7); }); }), 7);
}

TEST(AtProcessEnd, IsWaitedForByItsDestructor) {
  EXPECT_EQ(ExitOfChild([] {
              static std::atomic<bool> called{false};
              new AtProcessEnd([] { pause(); });  // called after the other one
              static AtProcessEnd* end = new AtProcessEnd([] {
                // Another thread destroys it while it is called.
                std::thread([] {
                  delete end;
                  _exit(called ? 7 : 8);
                }).detach();
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                called = true;
              });
            }),
            7);
}

struct Late {
  ~Late() { alive = false; }
  static inline bool alive = true;
};

TEST(AtProcessEnd, IsCalledWhileWhatWasMadeBeforeTheLastRenewalLives) {
  const auto ends = [](bool renew) {
    return ExitOfChild([renew] {
      new AtProcessEnd([] { _exit(Late::alive ? 7 : 8); });
      static const Late late;
      if (renew) AtProcessEnd::Renew();
    });
  };
  EXPECT_EQ(ends(true), 7);
  EXPECT_EQ(ends(false), 8);
}

TEST(AtProcessEnd, IsNotCalledOnceDestroyed) {
  EXPECT_EQ(ExitOfChild([] { AtProcessEnd gone([] { _exit(7); }); }), 3);
}

TEST(AtProcessEnd, IsNotCalledInAChildOfTheProcessThatMadeIt) {
  const AtProcessEnd parents([] { _exit(7); });
  EXPECT_EQ(ExitOfChild([] {}), 3);
}

TEST(AtProcessEnd, MayAddAnotherWhileItIsCalled) {
  EXPECT_EQ(ExitOfChild([] { new AtProcessEnd([] { new AtProcessEnd([] { _exit(7); }); }); }), 7);
}

TEST(AtProcessEnd, SurvivesWhatThrows) {
  EXPECT_EQ(ExitOfChild([] {
              new AtProcessEnd([] { throw 5; });
              new AtProcessEnd([] { throw std::runtime_error("boom"); });
            }),
            3);
}

}  // namespace process_end_test
}  // namespace ptqwatch::internal
