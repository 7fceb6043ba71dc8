#include "handover/step_checks.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace step_checks_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct StepChecksTest : ::testing::Test {
  bool Step(int64_t step, double rate = 1e-2) {
    return checks.OnStep({.step = step, .learning_rate = rate});
  }
  std::vector<std::string> Told() {
    std::vector<std::string> texts;
    for (const StepMistake& mistake : checks.Take()) {
      texts.push_back(mistake.text);
      EXPECT_THAT(mistake.text, HasSubstr(std::to_string(mistake.step)));
    }
    return texts;
  }
  StepChecks checks;
};

TEST_F(StepChecksTest, FindsNothingInAnOrdinaryRun) {
  // A warm-up from 0, steps that a scaler skipped, a rollback to a checkpoint, a decay to 0.
  for (int64_t step = 1; step <= 300; ++step) {
    EXPECT_FALSE(Step(step, step < 5 ? 0 : 1e-2));
    if (step % 50 == 1) {
      EXPECT_FALSE(Step(step));
    }
  }
  for (int64_t step = 201; step <= 400; ++step) EXPECT_FALSE(Step(step, step > 350 ? 0 : 1e-2));
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(StepChecksTest, TellsOfARateThatIsNoneOnce) {
  EXPECT_FALSE(Step(1));
  EXPECT_TRUE(Step(2, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(Step(3, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("StepInfo.learning_rate = nan at step 2")));
  EXPECT_FALSE(Step(4, -1));
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(StepChecksTest, TellsOfAnInfiniteOrNegativeRate) {
  EXPECT_TRUE(Step(7, -0.5));
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("StepInfo.learning_rate = -0.5 at step 7")));
  StepChecks other;
  EXPECT_TRUE(other.OnStep({.step = 1, .learning_rate = std::numeric_limits<double>::infinity()}));
}

TEST_F(StepChecksTest, TellsThatNoRateIsEverGiven) {
  for (int64_t step = 1; step < 20; ++step) EXPECT_FALSE(Step(step, 0));
  EXPECT_TRUE(Step(20, 0));
  EXPECT_THAT(Told(),
              ElementsAre(HasSubstr("StepInfo.learning_rate = 0 at all of the first 20 steps")));
}

TEST_F(StepChecksTest, TellsThatTheRateIsMissing) {
  for (int64_t step = 1; step < 20; ++step) EXPECT_FALSE(checks.OnStep({.step = step}));
  EXPECT_TRUE(checks.OnStep({.step = 20}));
  EXPECT_THAT(checks.Take()[0].text,
              HasSubstr("StepInfo.learning_rate is missing at all of the first 20 steps"));
}

TEST_F(StepChecksTest, TellsOfStepsThatStandStill) {
  // OnStep is called after each of two micro-batches.
  for (int64_t step = 1; step <= 30; ++step) {
    Step(step);
    Step(step);
  }
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("StepInfo.step = 10 does not advance")));
}

TEST_F(StepChecksTest, ReportsStepsThatStartOver) {
  for (int64_t step = 0; step < 100; ++step) EXPECT_FALSE(Step(step));
  EXPECT_TRUE(Step(0));
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("StepInfo.step = 0 came after 99")));
}

TEST_F(StepChecksTest, TellsOfTwoCountersThatTakeTurns) {
  for (int64_t step = 1; step <= 30; ++step) {
    Step(500 + step);
    Step(100 + step);
  }
  EXPECT_THAT(Told(), ElementsAre(HasSubstr("came after 5")));
}

}  // namespace step_checks_test
}  // namespace ptqwatch::internal
