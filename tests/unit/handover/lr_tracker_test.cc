#include "handover/lr_tracker.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace ptqwatch::internal {
namespace lr_tracker_test {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr double kPeak = 1e-2;

// Linear warmup over 300, constant to 12800, linear to 0 at 16000.
double Wsd(int64_t step) {
  if (step <= 300) return kPeak * static_cast<double>(step) / 300;
  if (step <= 12800) return kPeak;
  return kPeak * static_cast<double>(16000 - step) / 3200;
}

TEST(LrTracker, KnowsNoPhaseBeforeTheFirstRate) {
  LrTracker tracker;
  for (int64_t step = 1; step <= 400; ++step) tracker.Step(step, std::nullopt, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kUnknown);
  EXPECT_THAT(tracker.state().Points(), ElementsAre());
  tracker.Step(100, std::nullopt, std::nullopt);
  EXPECT_TRUE(tracker.state().rolled_back);
  for (int64_t step = 401; step <= 800; ++step) tracker.Step(step, kPeak, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
  EXPECT_THAT(tracker.state().Points(), ElementsAre(LrChangePoint{401, kPeak}));
  tracker.Step(801, std::nullopt, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable) << "the last rate holds";
}

TEST(LrTracker, FindsEveryPhaseAndTheExactOnsetOfWarmupStableDecay) {
  LrTracker tracker;
  for (int64_t step = 1; step <= 16000; ++step) {
    tracker.Step(step, Wsd(step), std::nullopt);
    const LrPhase phase = tracker.phase();
    if (step > 1 && step <= 300) {
      ASSERT_EQ(phase, LrPhase::kWarmup) << step;
    } else if (step > 300 && step <= 12800) {
      ASSERT_EQ(phase, LrPhase::kStable) << step;
      ASSERT_FALSE(tracker.state().decay_onset_step) << step;
    } else if (step > 12800) {
      ASSERT_EQ(phase, LrPhase::kDecay) << step;
      ASSERT_EQ(tracker.state().decay_onset_step, 12801) << step;
    }
  }
  const std::vector<LrChangePoint> points = tracker.state().Points();
  ASSERT_THAT(points, SizeIs(3));
  EXPECT_EQ(points[0], (LrChangePoint{1, Wsd(1)}));
  EXPECT_NEAR(static_cast<double>(points[1].step), 300, 2);
  EXPECT_EQ(points[2], (LrChangePoint{12800, kPeak}));
}

TEST(LrTracker, CallsTheFirstHalfOfACosineSlowDecayAndItsEndDecay) {
  LrTracker tracker;
  constexpr int64_t kSteps = 10000;
  for (int64_t step = 0; step <= kSteps; ++step) {
    const double x = static_cast<double>(step) / kSteps;
    tracker.Step(step, kPeak * (1 + std::cos(std::numbers::pi * x)) / 2, std::nullopt);
    if (step > kSteps / 100 && step < kSteps / 2) {
      ASSERT_EQ(tracker.phase(), LrPhase::kSlowDecay) << step;
    }
    if (step > kSteps * 6 / 10) {
      ASSERT_EQ(tracker.phase(), LrPhase::kDecay) << step;
    }
  }
  EXPECT_GT(tracker.state().num_points, 8);
  EXPECT_LE(tracker.state().num_points, LrState::kMaxPoints);
}

TEST(LrTracker, ReplaysItsCornersWithinHalfAPercentOfThePeak) {
  LrTracker tracker;
  for (int64_t step = 1; step <= 16000; ++step) tracker.Step(step, Wsd(step), std::nullopt);
  std::vector<LrChangePoint> points = tracker.state().Points();
  points.push_back({16000, 0});
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const auto [a, rate_a] = points[i];
    const auto [b, rate_b] = points[i + 1];
    for (int64_t step = a; step <= b; ++step) {
      const double line =
          rate_a + (rate_b - rate_a) * static_cast<double>(step - a) / static_cast<double>(b - a);
      ASSERT_NEAR(line, Wsd(step), 0.01 * kPeak) << step;
    }
  }
}

TEST(LrTracker, SeesARewarmAfterADecay) {
  LrTracker tracker;
  int64_t step = 0;
  for (; step < 1000; ++step) tracker.Step(step, kPeak, std::nullopt);
  for (int i = 1; i <= 100; ++i) tracker.Step(step++, kPeak * (1 - i / 101.0), std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kDecay);
  for (int i = 1; i <= 50; ++i) tracker.Step(step++, kPeak * i / 50, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kRewarm);
  EXPECT_FALSE(tracker.state().decay_onset_step);
  for (int i = 0; i < 10; ++i) tracker.Step(step++, kPeak, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
}

TEST(LrTracker, TakesALongLowerLevelAsANewPlateau) {
  LrTracker tracker;
  int64_t step = 0;
  for (; step < 1000; ++step) tracker.Step(step, kPeak, std::nullopt);
  for (; step < 1100; ++step) tracker.Step(step, kPeak / 10, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kDecay);
  for (; step < 2000; ++step) tracker.Step(step, kPeak / 10, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
}

TEST(LrTracker, MarksARollbackAndForgetsAnOnsetAfterIt) {
  LrTracker tracker;
  for (int64_t step = 1; step <= 14000; ++step) tracker.Step(step, Wsd(step), std::nullopt);
  tracker.Reported();
  tracker.Step(12000, Wsd(12000), std::nullopt);
  EXPECT_TRUE(tracker.state().rolled_back);
  EXPECT_FALSE(tracker.state().decay_onset_step);
  EXPECT_THAT(tracker.state().Points(), ElementsAre(LrChangePoint{12000, kPeak}));
  tracker.Step(12001, Wsd(12001), std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
  tracker.Reported();
  EXPECT_FALSE(tracker.state().rolled_back);
}

TEST(LrTracker, KeepsTheExactOnsetOfAnEarlierAttempt) {
  // Corners and reports of an attempt that ended at 13600; the decay began at 12801.
  LrTracker tracker;
  for (int64_t step : {1, 300, 6000, 12000, 12800, 13600})
    tracker.Step(step, Wsd(step), std::nullopt);
  tracker.Restore(LrPhase::kDecay, 12801);
  tracker.Step(13601, Wsd(13601), std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kDecay);
  EXPECT_EQ(tracker.state().decay_onset_step, 12801);
  // From a checkpoint inside the decay.
  tracker.Step(13000, Wsd(13000), std::nullopt);
  tracker.Step(13001, Wsd(13001), std::nullopt);
  EXPECT_EQ(tracker.state().decay_onset_step, 12801);
}

TEST(LrTracker, TakesBackWhatNoReportHasTaken) {
  LrTracker dropped;
  LrTracker whole;
  for (int64_t step = 1; step <= 16000; ++step) {
    if (step == 9000) {  // a snapshot that turns out to be incomplete
      const LrState taken = dropped.state();
      dropped.Reported();
      for (LrTracker* tracker : {&dropped, &whole}) tracker->Step(8000, kPeak, std::nullopt);
      EXPECT_EQ(dropped.state().num_points, 1);
      dropped.NotReported(taken);
    }
    for (LrTracker* tracker : {&dropped, &whole}) tracker->Step(step, Wsd(step), std::nullopt);
  }
  EXPECT_EQ(dropped.state().Points(), whole.state().Points());
  EXPECT_TRUE(dropped.state().rolled_back);
  LrState rolled_back;
  rolled_back.rolled_back = true;
  dropped.Reported();
  dropped.NotReported(rolled_back);
  EXPECT_TRUE(dropped.state().rolled_back);
  EXPECT_THAT(dropped.state().Points(), SizeIs(0));
}

TEST(LrTracker, ObeysAnOverride) {
  LrTracker tracker;
  tracker.Step(1, kPeak, LrPhase::kStable);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
  tracker.Step(2, kPeak, LrPhase::kDecay);
  EXPECT_EQ(tracker.phase(), LrPhase::kDecay);
  EXPECT_EQ(tracker.state().decay_onset_step, 2);
}

TEST(LrTracker, SurvivesNonFiniteRatesRepeatedStepsAndZero) {
  LrTracker tracker;
  tracker.Step(0, 0, std::nullopt);
  tracker.Step(1, std::numeric_limits<double>::quiet_NaN(), std::nullopt);
  tracker.Step(2, std::numeric_limits<double>::infinity(), std::nullopt);
  tracker.Step(3, kPeak, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kWarmup);
  tracker.Step(3, kPeak, std::nullopt);
  tracker.Step(4, kPeak, std::nullopt);
  EXPECT_EQ(tracker.phase(), LrPhase::kStable);
}

TEST(LrTracker, KeepsTheFirstCornersWhenTooManyGather) {
  LrTracker tracker;
  for (int64_t step = 0; step < 1000; ++step) {
    tracker.Step(step, kPeak * (step % 2 == 0 ? 1.0 : 0.5), std::nullopt);
  }
  EXPECT_EQ(tracker.state().num_points, LrState::kMaxPoints);
  EXPECT_EQ(tracker.state().points[0].step, 0);
  EXPECT_GT(tracker.state().points[LrState::kMaxPoints - 1].step, 990);
}

}  // namespace lr_tracker_test
}  // namespace ptqwatch::internal
