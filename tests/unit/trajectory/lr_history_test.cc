#include "trajectory/lr_history.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace lr_history_test {

std::vector<Checkpoint> Every(int64_t interval, int64_t last, const std::string& branch = "") {
  std::vector<Checkpoint> checkpoints;
  for (int64_t step = interval; step <= last; step += interval) {
    checkpoints.push_back({.path = "x", .branch = branch, .step = step});
  }
  return checkpoints;
}

TEST(FollowRates, FindsThePhasesAndTheOnsetOfASchedule) {
  const auto schedules =
      *LrSchedules::Parse({"wsd:peak=1e-3,warmup=100,decay_start=1500,end=2000"});
  const auto rates = FollowRates(Every(200, 2000), schedules);
  ASSERT_EQ(rates.size(), 10u);
  EXPECT_EQ(rates[0].lr.phase, LrPhase::kStable);
  EXPECT_EQ(rates[6].lr.phase, LrPhase::kStable);  // step 1400
  EXPECT_EQ(rates[7].lr.phase, LrPhase::kDecay);   // step 1600
  EXPECT_EQ(rates[7].lr.decay_onset_step, 1501) << "between two checkpoints";
  EXPECT_DOUBLE_EQ(*rates[7].learning_rate, 8e-4);
  EXPECT_EQ(*rates[9].learning_rate, 0);
  // The corner at the end of the plateau is in the first report of the decay alone.
  EXPECT_EQ(rates[7].lr.num_points, 1);
  EXPECT_EQ(rates[7].lr.points[0].step, 1500);
  EXPECT_EQ(rates[8].lr.num_points, 0);
}

TEST(FollowRates, GuessesNothing) {
  for (const LrAtCheckpoint& at : FollowRates(Every(100, 500), LrSchedules())) {
    EXPECT_EQ(at.learning_rate, std::nullopt);
    EXPECT_EQ(at.lr.phase, LrPhase::kUnknown);
    EXPECT_EQ(at.lr.num_points, 0);
  }
}

TEST(FollowRates, PrefersTheManifestThenTheScheduleThenTheTrainer) {
  std::vector<Checkpoint> checkpoints = Every(100, 300);
  for (Checkpoint& checkpoint : checkpoints) checkpoint.rates = {{50, 3.0}, {250, 4.0}};
  auto rates = FollowRates(checkpoints, LrSchedules());
  EXPECT_EQ(rates[0].learning_rate, 3.0);
  EXPECT_EQ(rates[2].learning_rate, 4.0);
  checkpoints[1].learning_rate = 7.0;
  rates = FollowRates(checkpoints, *LrSchedules::Parse({"constant:peak=5"}));
  EXPECT_EQ(rates[0].learning_rate, 5.0);
  EXPECT_EQ(rates[1].learning_rate, 7.0);
  EXPECT_EQ(rates[2].learning_rate, 5.0);
}

TEST(FollowRates, FollowsWhatATrainerLogged) {
  std::vector<Checkpoint> checkpoints = Every(500, 1500);
  std::vector<LrChangePoint> log;
  for (int64_t step = 10; step <= 1500; step += 10) {
    log.push_back({step, step <= 1200 ? 1e-3 : 1e-3 * static_cast<double>(1500 - step) / 300});
    for (Checkpoint& checkpoint : checkpoints) {
      if (step <= checkpoint.step) checkpoint.rates = log;
    }
  }
  const auto rates = FollowRates(checkpoints, LrSchedules());
  EXPECT_EQ(rates[1].lr.phase, LrPhase::kStable);
  EXPECT_EQ(rates[2].lr.phase, LrPhase::kDecay);
  EXPECT_EQ(rates[2].lr.decay_onset_step, 1210);
  EXPECT_EQ(rates[2].learning_rate, 0);
}

TEST(FollowRates, FollowsEachBranchByItself) {
  std::vector<Checkpoint> checkpoints = Every(100, 1000);
  for (const Checkpoint& checkpoint : Every(100, 300, "stage2")) checkpoints.push_back(checkpoint);
  const auto schedules =
      *LrSchedules::Parse({"constant:peak=1e-3", "stage2=linear:peak=5e-4,end=300"});
  const auto rates = FollowRates(checkpoints, schedules);
  EXPECT_EQ(rates[9].lr.phase, LrPhase::kStable);
  EXPECT_FALSE(rates[10].lr.rolled_back) << "its steps begin again, but no step was undone";
  EXPECT_LT(*rates[10].learning_rate, 5e-4);
  EXPECT_EQ(rates[12].learning_rate, 0);
}

TEST(FollowRates, HasNoRateForASoup) {
  const auto rates = FollowRates({Checkpoint{.branch = "soup", .step = 9, .soup = {"a", "b"}}},
                                 *LrSchedules::Parse({"constant:peak=1"}));
  EXPECT_EQ(rates[0].learning_rate, std::nullopt);
}

}  // namespace lr_history_test
}  // namespace ptqwatch::internal
