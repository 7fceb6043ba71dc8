#include "monitor/pace.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "base/thread_priority.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace pace_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PaceTest : public ::testing::Test {
 protected:
  // Two CPUs, of which training keeps `busy_` busy.
  std::optional<CpuReading> Read() {
    const double now = std::chrono::duration<double>(clock_.Monotonic()).count();
    reading_.idle += (now - reading_.wall) * (2 - busy_);
    reading_.wall = now;
    return reading_;
  }
  void Work(milliseconds duration) {
    pacer_.Begin();
    clock_.Advance(duration);
    pacer_.Pause(CancelToken());
  }
  int64_t rest_until() const { return switches_->rest_until_ns; }

  testing::FakeClock clock_;
  double busy_ = 2;
  CpuReading reading_;
  Pacer pacer_{1, &clock_};
  std::shared_ptr<TrainerSwitches> switches_ = std::make_shared<TrainerSwitches>(10);
  std::shared_ptr<StatusBoard> board_ = std::make_shared<StatusBoard>();
  Pace pace_{{}, &clock_, pacer_, switches_, board_, [this] { return Read(); }};
};

TEST_F(PaceTest, TakesNoSnapshotWhileOneIsMeasuredAndUntilItIsPaidFor) {
  pace_.Enter();
  EXPECT_EQ(rest_until(), 0);
  clock_.Advance(milliseconds(200));
  pace_.BeginSnapshot();
  EXPECT_EQ(rest_until(), std::numeric_limits<int64_t>::max());
  const auto begin = clock_.Monotonic();
  Work(seconds(1));
  EXPECT_NEAR(static_cast<double>(clock_.slept().count()), 3e9, 1e8);  // a quarter of the time
  pace_.EndSnapshot();
  // 1 s is 4 % of 25 s.
  EXPECT_NEAR(1e-9 * static_cast<double>(rest_until() - begin.count()), 25, 0.3);
  EXPECT_DOUBLE_EQ(board_->Read(0, 0).duty_cycle, 0.04);
}

TEST_F(PaceTest, WorksOnWithoutRestWhereACoreIsSpare) {
  busy_ = 1;
  pace_.Enter();
  clock_.Advance(seconds(2));
  pace_.BeginSnapshot();
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(5));
  pace_.EndSnapshot();
  EXPECT_EQ(rest_until(), 0);
  EXPECT_EQ(clock_.slept().count(), 0);
  EXPECT_EQ(board_->Read(0, 0).duty_cycle, 1);
}

TEST_F(PaceTest, GivesNoTimeToWhatCanWaitWhereNoCoreIsSpare) {
  pace_.Enter();
  clock_.Advance(milliseconds(200));
  EXPECT_FALSE(pace_.BeginSpareTime());
  EXPECT_FALSE(switches_->measuring);
  // Training waits: now there is time.
  pace_.BeginUnhindered();
  EXPECT_TRUE(pace_.BeginSpareTime());
  pace_.EndUnhindered();
  EXPECT_FALSE(pace_.spare_time());
  pace_.EndSpareTime();
}

TEST_F(PaceTest, TakesSnapshotsWhileItDoesWhatCanWait) {
  busy_ = 1;
  pace_.Enter();
  clock_.Advance(seconds(2));
  ASSERT_TRUE(pace_.BeginSpareTime());
  EXPECT_TRUE(switches_->measuring);
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(5));
  EXPECT_TRUE(pace_.spare_time());
  pace_.EndSpareTime();
  EXPECT_FALSE(switches_->measuring);
  EXPECT_EQ(rest_until(), 0);
}

TEST_F(PaceTest, NoticesWhileItWorksThatTheCoreIsGone) {
  busy_ = 1;
  pace_.Enter();
  clock_.Advance(seconds(2));
  pace_.BeginSnapshot();
  busy_ = 2;
  Work(seconds(2));
  EXPECT_GT(clock_.slept(), seconds(5));
  EXPECT_EQ(rest_until(), std::numeric_limits<int64_t>::max());
}

TEST_F(PaceTest, IsNotChargedForWaiting) {
  pace_.Enter();
  clock_.Advance(milliseconds(200));
  pace_.BeginSnapshot();
  pacer_.Begin();
  clock_.Wait(seconds(60));
  pacer_.Pause(CancelToken());
  pace_.EndSnapshot();
  EXPECT_EQ(clock_.slept().count(), 0);
  EXPECT_LE(rest_until(), clock_.Monotonic().count());
}

TEST_F(PaceTest, IsNicerWhereNoCoreIsSpare) {
  const auto nice = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  std::thread([&] {
    const int before = nice();
    pace_.Enter();
    clock_.Advance(milliseconds(200));
    pace_.BeginSnapshot();
    EXPECT_GT(nice(), before);
    // Linux may refuse the way back.
    pace_.BeginUnhindered();
    pace_.EndSnapshot();
    if (IdlePriorityCanBeLeft()) {
      EXPECT_EQ(nice(), before);
    }
  }).join();
}

TEST_F(PaceTest, IsUnhinderedWhileTrainingWaits) {
  pace_.Enter();
  clock_.Advance(milliseconds(200));
  pace_.BeginSnapshot();
  pace_.BeginUnhindered();
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(10));
  EXPECT_EQ(clock_.slept().count(), 0);
  pace_.EndSnapshot();
  EXPECT_EQ(rest_until(), 0);
}

}  // namespace pace_test
}  // namespace ptqwatch::internal
