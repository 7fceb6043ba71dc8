#include "handover/step_times.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace step_times_test {

class StepTimesTest : public ::testing::Test {
 protected:
  StepTimesTest() { times_.OnStep(now_, false, false); }
  void Steps(int count, double seconds, bool working) {
    for (int i = 0; i < count; ++i) {
      now_ += seconds;
      times_.OnStep(now_, working, false);
    }
  }
  double now_ = 100;
  StepTimes times_;
  Slowdown slowdown_;
};

TEST_F(StepTimesTest, TellsHowMuchLongerStepsTakeWhileTheMonitorWorks) {
  Steps(50, 0.1, false);
  Steps(51, 0.12, true);  // the first of these steps is only partly with work
  const auto compared = slowdown_.Compare(times_);
  ASSERT_TRUE(compared);
  EXPECT_NEAR(compared->ratio, 0.2, 1e-6);
  EXPECT_NEAR(compared->stderr_ratio, 0, 1e-6);
  EXPECT_NEAR(compared->lost_seconds, 50 * 0.02, 1e-6);
}

TEST_F(StepTimesTest, ComparesOnlyWhatIsNew) {
  Steps(50, 0.1, false);
  Steps(50, 0.2, true);
  ASSERT_TRUE(slowdown_.Compare(times_));
  EXPECT_FALSE(slowdown_.Compare(times_));
  Steps(30, 0.1, false);
  Steps(31, 0.1, true);
  const auto compared = slowdown_.Compare(times_);
  ASSERT_TRUE(compared);
  EXPECT_NEAR(compared->ratio, 0, 1e-6);
}

TEST_F(StepTimesTest, WaitsForEnoughOfBothKinds) {
  Steps(8, 0.1, false);
  Steps(100, 0.1, true);
  EXPECT_FALSE(slowdown_.Compare(times_));
  Steps(5, 0.1, false);
  EXPECT_TRUE(slowdown_.Compare(times_));
}

TEST_F(StepTimesTest, LeavesOutEvaluationsAndCopies) {
  Steps(50, 0.1, false);
  Steps(20, 0.1, true);
  Steps(1, 30, true);  // an evaluation
  now_ += 1;
  times_.OnStep(now_, true, /*copied=*/true);
  Steps(20, 0.1, true);
  const auto compared = slowdown_.Compare(times_);
  ASSERT_TRUE(compared);
  EXPECT_NEAR(compared->ratio, 0, 1e-6);
}

TEST_F(StepTimesTest, FollowsStepsThatBecomeLongerForGood) {
  Steps(50, 0.1, false);
  Steps(400, 1, false);  // longer sequences from here on
  EXPECT_GT(times_.alone().steps, 300);
}

TEST_F(StepTimesTest, SaysHowSureItIs) {
  for (int i = 0; i < 100; ++i) Steps(1, i % 2 == 0 ? 0.08 : 0.12, i >= 50);
  const auto compared = slowdown_.Compare(times_);
  ASSERT_TRUE(compared);
  EXPECT_LT(compared->ratio, 2 * compared->stderr_ratio);
  EXPECT_NEAR(compared->stderr_ratio, 0.04, 0.005);  // 20 % / sqrt(50), twice
}

TEST(Slowdown, IsNoneIfItMayBeChance) {
  Slowdown slowdown;
  for (int i = 0; i < 60; ++i) {
    slowdown.Add({i % 2 == 0 ? 0.05 : -0.04, 0.03});
    EXPECT_EQ(slowdown.ratio(), 0) << i;
  }
}

// Each comparison alone is within its error.
TEST(Slowdown, AddsUpWhatItSees) {
  Slowdown slowdown;
  slowdown.Add({0.04, 0.02});
  EXPECT_EQ(slowdown.ratio(), 0);
  for (int i = 0; i < 10; ++i) slowdown.Add({i % 2 == 0 ? 0.06 : 0.02, 0.02});
  EXPECT_NEAR(slowdown.ratio(), 0.04, 0.004);
}

TEST(Slowdown, IsNotBelievedFromASingleComparison) {
  Slowdown slowdown;
  for (int i = 0; i < 10; ++i) slowdown.Add({0.005, 0.01});
  slowdown.Add({1, 0.01});  // another process on the machine
  EXPECT_LT(slowdown.ratio(), 0.02);
}

}  // namespace step_times_test
}  // namespace ptqwatch::internal
