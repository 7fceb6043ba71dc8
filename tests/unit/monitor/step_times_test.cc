#include "monitor/step_times.h"

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
  SlowdownEstimate estimate_;
};

TEST_F(StepTimesTest, TellsHowMuchLongerStepsTakeWhileTheMonitorWorks) {
  Steps(50, 0.1, false);
  Steps(51, 0.12, true);  // the first of them is not wholly one or the other
  const auto slowdown = estimate_.Update(times_);
  ASSERT_TRUE(slowdown);
  EXPECT_NEAR(slowdown->ratio, 0.2, 1e-6);
  EXPECT_NEAR(slowdown->stderr_ratio, 0, 1e-6);
  EXPECT_NEAR(slowdown->lost_seconds, 50 * 0.02, 1e-6);
}

TEST_F(StepTimesTest, ComparesOnlyWhatIsNew) {
  Steps(50, 0.1, false);
  Steps(50, 0.2, true);
  ASSERT_TRUE(estimate_.Update(times_));
  EXPECT_FALSE(estimate_.Update(times_));
  Steps(30, 0.1, false);
  Steps(31, 0.1, true);
  const auto slowdown = estimate_.Update(times_);
  ASSERT_TRUE(slowdown);
  EXPECT_NEAR(slowdown->ratio, 0, 1e-6);
}

TEST_F(StepTimesTest, WaitsForEnoughOfBothKinds) {
  Steps(8, 0.1, false);
  Steps(100, 0.1, true);
  EXPECT_FALSE(estimate_.Update(times_));
  Steps(5, 0.1, false);
  EXPECT_TRUE(estimate_.Update(times_));
}

TEST_F(StepTimesTest, LeavesOutEvaluationsAndCopies) {
  Steps(50, 0.1, false);
  Steps(20, 0.1, true);
  Steps(1, 30, true);  // an evaluation
  now_ += 1;
  times_.OnStep(now_, true, /*copied=*/true);
  Steps(20, 0.1, true);
  const auto slowdown = estimate_.Update(times_);
  ASSERT_TRUE(slowdown);
  EXPECT_NEAR(slowdown->ratio, 0, 1e-6);
}

TEST_F(StepTimesTest, FollowsStepsThatBecomeLongerForGood) {
  Steps(50, 0.1, false);
  Steps(400, 1, false);  // longer sequences from here on
  EXPECT_GT(times_.alone().steps, 300);
}

TEST_F(StepTimesTest, SaysHowSureItIs) {
  for (int i = 0; i < 100; ++i) Steps(1, i % 2 == 0 ? 0.08 : 0.12, i >= 50);
  const auto slowdown = estimate_.Update(times_);
  ASSERT_TRUE(slowdown);
  EXPECT_LT(slowdown->ratio, 2 * slowdown->stderr_ratio);
  EXPECT_NEAR(slowdown->stderr_ratio, 0.04, 0.005);  // 20 % / sqrt(50), twice
}

}  // namespace step_times_test
}  // namespace ptqwatch::internal
