#include "budget/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ptqwatch::internal {
namespace planner_test {

using ::testing::HasSubstr;

constexpr PlanRange kRange{.probe_batches = 32,
                           .min_probe_batches = 2,
                           .calibration_batches = 16,
                           .min_calibration_batches = 2,
                           .curvature_sequences = 64};
// The full plan takes 32 * 0.5 + 16 * 0.1 + 0.4 = 18 s for quantization and 64 s for curvature.
SnapshotCosts CostsWith(double curvature_sequence) {
  return SnapshotCosts(
      {{.probe = "quantization", .fixed = 0.4, .probe_batch = 0.5, .calibration_batch = 0.1},
       {.probe = "curvature", .with_curvature = true, .curvature_sequence = curvature_sequence}});
}
const PlanModel kModel{kRange, CostsWith(1)};

TEST(PlanModel, TakesEverythingThatFits) {
  EXPECT_EQ(kModel.Fit(82), kModel.Full());
  EXPECT_NE(kModel.Fit(81), kModel.Full());
}

TEST(PlanModel, FitsTheTime) {
  for (const double seconds : {4.0, 6.0, 10.0, 20.0, 40.0, 80.0}) {
    const Plan plan = kModel.Fit(seconds);
    EXPECT_LE(kModel.Quantization(plan), 0.6 * seconds) << seconds;
    EXPECT_LE(kModel.Mean(plan), 1.01 * seconds) << seconds;
    EXPECT_LE(plan.curvature_every, 3) << seconds;
  }
}

TEST(PlanModel, GrowsWithTheTime) {
  Plan before = kModel.Fit(1);
  for (double seconds = 2; seconds < 100; seconds += 1) {
    const Plan plan = kModel.Fit(seconds);
    EXPECT_GE(kModel.Quantization(plan), kModel.Quantization(before)) << seconds;
    before = plan;
  }
}

TEST(PlanModel, GivesTheSmallestIfNothingFits) {
  const Plan plan = kModel.Fit(0.01);
  EXPECT_EQ(plan.probe_batches, 2);
  EXPECT_EQ(plan.calibration_batches, 2);
  EXPECT_EQ(plan.curvature_sequences, 1);
  EXPECT_GT(plan.curvature_every, 3);  // it may be rare, but it comes
}

TEST(PlanModel, LeavesAClassifierEnoughExamplesForItsCurvature) {
  PlanRange range = kRange;
  range.curvature_sequences = 1000;
  range.one_loss_each = true;
  range.min_curvature_sequences = 64;
  PlanModel model{range, CostsWith(0.1)};
  const Plan plan = model.Fit(1);
  EXPECT_EQ(plan.curvature_sequences, 64);
  EXPECT_THAT(model.Describe(plan), HasSubstr("curvature on 64 of 1000 examples at every"));
  model.costs = CostsWith(1);  // over a minute
  EXPECT_LT(model.Fit(1).curvature_sequences, 64);
}

TEST(Planner, MeasuresTheLastSnapshotWithAllThatTheWaitAllows) {
  Planner planner(kModel, std::nullopt);
  planner.Fit(4);
  EXPECT_LT(planner.plan().probe_batches, 32);
  EXPECT_EQ(planner.Last(3 * 82), kModel.Full());
  // Not enough time for the full 64 s of curvature.
  const std::optional<Plan> less = planner.Last(3 * 81);
  ASSERT_TRUE(less);
  EXPECT_EQ(less->probe_batches, 32);
  EXPECT_EQ(less->calibration_batches, 16);
  EXPECT_EQ(less->curvature_sequences, planner.plan().curvature_sequences);
  EXPECT_FALSE(planner.Last(3 * 17));
}

TEST(PlanModel, KeepsTheCurvatureBatchThatWasChosen) {
  const Plan plan = kModel.Fit(20, 16);
  EXPECT_EQ(plan.curvature_sequences, 16);
  EXPECT_LE(kModel.Mean(plan), 20);
}

TEST(PlanModel, LeavesCurvatureOutIfThereIsNone) {
  PlanRange range = kRange;
  range.curvature_sequences = 0;
  const Plan plan = PlanModel{range, CostsWith(1)}.Fit(10);
  EXPECT_EQ(plan.curvature_sequences, 0);
  EXPECT_EQ(plan.curvature_every, 0);
  EXPECT_LE(kModel.Quantization(plan), 10);
}

// Each merge takes 2 + 32 * 0.25 = 10 s beside the 82 s of the full plan.
PlanModel WithMerges() {
  PlanModel model = kModel;
  std::vector<ProbeCost> costs = model.costs.probes();
  costs.push_back({.probe = "merges",
                   .with_curvature = true,
                   .of_each = &Plan::merges,
                   .most = 5,
                   .fixed = 2,
                   .probe_batch = 0.25});
  model.costs = SnapshotCosts(costs);
  return model;
}

TEST(PlanModel, HasTheMergesThatFitInHalfOfTheTime) {
  const PlanModel model = WithMerges();
  EXPECT_EQ(model.Fit(2 * 133), model.Full());
  EXPECT_EQ(model.Full().merges, 5);
  EXPECT_EQ(model.Fit(2 * 122.5).merges, 4);
  EXPECT_EQ(model.Fit(2 * 91).merges, 0);
  // They take nothing from the rest of the plan.
  for (const double seconds : {1.0, 40.0, 83.0, 100.0, 200.0, 300.0}) {
    Plan plan = model.Fit(seconds);
    plan.merges = 0;
    EXPECT_EQ(plan, kModel.Fit(seconds)) << seconds;
  }
  EXPECT_THAT(model.Describe(model.Fit(2 * 122.5)), HasSubstr("snapshot, 4 of 5 merges"));
}

TEST(Planner, MergesWithCurvatureAtSnapshotsOfTheSchedule) {
  Planner planner(WithMerges(), std::nullopt);
  planner.Fit(300);
  EXPECT_EQ(planner.Next(100).merges, 0);  // the first
  EXPECT_EQ(planner.Next(100).merges, 5);
  EXPECT_EQ(planner.Additional(200).merges, 0);
  EXPECT_EQ(planner.Additional(200).curvature_sequences, 64);
  EXPECT_EQ(planner.Last(3 * 133)->merges, 5);
  EXPECT_EQ(planner.model().WithoutCurvature(planner.plan()).merges, 0);
}

TEST(Planner, FitsTheMergesOfAPlanThatWasKept) {
  Planner planner(WithMerges(), Plan{32, 16, 64, 1, 5});
  EXPECT_EQ(planner.plan().merges, 0);
  planner.Fit(2 * 122.5);
  EXPECT_EQ(planner.plan(), (Plan{32, 16, 64, 1, 4}));
}

// Both sets take 40 s together, beside the 82 s of the full plan and 10 s for each merge.
TEST(PlanModel, HasAllFurtherSetsOrNoneAndThenMerges) {
  PlanModel model = WithMerges();
  std::vector<ProbeCost> costs = model.costs.probes();
  costs.push_back({.probe = "sets", .of_each = &Plan::further_probe_sets, .most = 2, .fixed = 20});
  model.costs = SnapshotCosts(costs);
  EXPECT_EQ(model.Full().further_probe_sets, 2);
  EXPECT_EQ(model.Smallest().further_probe_sets, 0);
  const auto fit = [&](double seconds) {
    const Plan plan = model.Fit(2 * seconds);
    return std::pair(plan.further_probe_sets, plan.merges);
  };
  EXPECT_EQ(fit(172.5), std::pair(int64_t{2}, int64_t{5}));
  EXPECT_EQ(fit(122.5), std::pair(int64_t{2}, int64_t{0}));
  EXPECT_EQ(fit(112.5), std::pair(int64_t{0}, int64_t{3}));
  EXPECT_THAT(model.Describe(model.Full()), HasSubstr("5 of 5 merges, 2 of 2 further probe sets"));
  // The sets of a kept plan follow the time too, and the first snapshot can be small.
  Planner planner(model, Plan{32, 16, 64, 1, 5, 2});
  EXPECT_EQ(planner.plan().further_probe_sets, 0);
  planner.Fit(2 * 122.5);
  EXPECT_EQ(planner.plan(), (Plan{32, 16, 64, 1, 0, 2}));
  Planner fresh(model, std::nullopt);
  fresh.Fit(2 * 172.5);
  EXPECT_EQ(fresh.Next(1).further_probe_sets, 0);
  EXPECT_EQ(fresh.Next(1).further_probe_sets, 2);
  EXPECT_EQ(fresh.Additional(1000).further_probe_sets, 2);
}

TEST(Planner, DropsMergesFirstIfTheyTakeLonger) {
  Planner planner(WithMerges(), std::nullopt);
  planner.Fit(300);
  for (int i = 0; i < 3; ++i) planner.Next(100);
  const SnapshotWork work{planner.plan(),
                          {{"quantization", 18}, {"curvature", 64}, {"merges", 16 * 50.0}}};
  planner.Measured(work, 300);
  planner.Measured(work, 300);
  planner.Measured(work, 300);
  EXPECT_EQ(planner.plan(), (Plan{32, 16, 64, 1, 0}));
}

TEST(Planner, MeasuresTheFirstSnapshotWithLittleIfAllWouldTakeLong) {
  Planner planner(kModel, std::nullopt);
  planner.Fit(40);
  const Plan first = planner.Next(/*soon=*/10);
  EXPECT_EQ(first, kModel.Smallest());
  EXPECT_GT(planner.Next(10).curvature_sequences, 0);  // due at the second
}

TEST(Planner, PutsCurvatureOffFurtherIfItIsRare) {
  Planner planner(kModel, std::nullopt);
  planner.Fit(0.1);
  EXPECT_EQ(planner.Next(0.01), kModel.Smallest());
  int64_t without = 0;
  while (planner.Next(0.01).curvature_sequences == 0) ++without;
  EXPECT_EQ(without, planner.plan().curvature_every - 1);
}

TEST(Planner, MeasuresTheFirstSnapshotInFullIfThatIsQuick) {
  Planner planner(kModel, std::nullopt);
  planner.Fit(100);
  EXPECT_EQ(planner.Next(/*soon=*/90), kModel.Full());
}

TEST(Planner, MeasuresCurvatureAtEveryKthSnapshot) {
  Planner planner(kModel, Plan{4, 2, 8, 3});
  std::string due;
  for (int i = 0; i < 7; ++i) due += planner.Next(1).curvature_sequences > 0 ? 'x' : '.';
  EXPECT_EQ(due, "x..x..x");
}

TEST(Planner, AddsSnapshotsWithoutCurvatureIfThatTakesLong) {
  Planner planner(kModel, Plan{4, 2, 8, 3});
  EXPECT_EQ(planner.Next(1).curvature_sequences, 8);
  const Plan plan = planner.plan();
  const double all = kModel.Whole(plan);
  EXPECT_EQ(planner.Additional(1.01 * all), plan);
  EXPECT_EQ(planner.Additional(0.99 * all), (Plan{4, 2, 0, 3}));
  // Additional snapshots do not change when curvature is due.
  std::string due;
  for (int i = 0; i < 3; ++i) due += planner.Next(1).curvature_sequences > 0 ? 'x' : '.';
  EXPECT_EQ(due, "..x");
}

TEST(Planner, FitsAgainOnceTheFirstSnapshotHasShownTheCosts) {
  Planner planner(kModel, std::nullopt);
  planner.Fit(20);
  const Plan first = planner.Next(1);
  // Ten times the expected seconds.
  const double took = 10 * kModel.Quantization(first);
  const std::optional<std::string> changed =
      planner.Measured({first, {{"quantization", took}}}, 20);
  ASSERT_TRUE(changed);
  EXPECT_THAT(*changed, HasSubstr("may take 20 s (before: probe "));
  EXPECT_LT(planner.plan().probe_batches, 8);
}

TEST(Planner, KeepsThePlanWhileItIsNearlyRight) {
  Planner planner(kModel, Plan{4, 4, 2, 1});
  const Plan plan = planner.plan();
  const double quantization = kModel.Quantization(plan);
  const double curvature = kModel.Curvature(plan);
  for (int i = 0; i < 100; ++i) {
    const double scatter = i % 2 == 0 ? 0.8 : 1.25;
    EXPECT_FALSE(planner.Measured(
        {planner.Next(1),
         {{"quantization", scatter * quantization}, {"curvature", scatter * curvature}}},
        quantization + curvature));
  }
  EXPECT_EQ(planner.plan(), plan);
}

TEST(Planner, ChangesAPlanThatHasBecomeTooExpensiveAndNotBack) {
  Planner planner(kModel, Plan{16, 4, 2, 1});
  int changes = 0;
  for (int i = 0; i < 50; ++i) {
    const Plan plan = planner.Next(1);
    // The machine is three times slower.
    const bool changed = planner
                             .Measured({plan,
                                        {{"quantization", 3 * kModel.Quantization(plan)},
                                         {"curvature", 3 * kModel.Curvature(plan)}}},
                                       10)
                             .has_value();
    changes += changed;
  }
  EXPECT_GE(changes, 1);
  EXPECT_LE(changes, 2);
  EXPECT_EQ(planner.plan().curvature_sequences, 2);  // the same series
  EXPECT_LE(planner.model().Quantization(planner.plan()), 6.1);
}

TEST(Planner, TakesOverThePlanOfTheAttemptBefore) {
  Planner planner(kModel, Plan{8, 4, 16, 3});
  planner.Fit(1000);
  EXPECT_EQ(planner.plan(), (Plan{8, 4, 16, 3}));
  // The subject has fewer batches than in the earlier attempt.
  Planner smaller({{.probe_batches = 3, .calibration_batches = 1}, CostsWith(1)},
                  Plan{8, 4, 16, 3});
  EXPECT_EQ(smaller.plan().probe_batches, 3);
  EXPECT_EQ(smaller.plan().calibration_batches, 1);
  EXPECT_EQ(smaller.plan().curvature_sequences, 0);
}

TEST(Planner, KeepsAFixedPlanWhateverItTakes) {
  Planner planner(kModel, Plan{4, 2, 8, 3}, /*fixed=*/true);
  planner.Fit(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(planner.Next(1), kModel.Full());
    EXPECT_FALSE(planner.Measured({kModel.Full(), {{"quantization", 1000}}}, 1));
  }
  EXPECT_EQ(planner.Additional(1), kModel.Full());
  EXPECT_EQ(planner.Last(1), kModel.Full());
}

TEST(PlanModel, SaysHowMuchOfEverything) {
  EXPECT_EQ(kModel.Describe({4, 2, 8, 3}),
            "probe 4 of 32 batches, calibration 2 of 16 batches, curvature on 8 of 64 sequences at "
            "every 3rd snapshot");
  EXPECT_EQ(kModel.Describe({32, 16, 64, 1}),
            "probe 32 of 32 batches, calibration 16 of 16 batches, curvature on 64 of 64 sequences "
            "at every snapshot");
  EXPECT_THAT(kModel.Describe({4, 2, 0, 0}), HasSubstr("no curvature"));
  EXPECT_THAT(kModel.Describe({4, 2, 8, 12}), HasSubstr("every 12th"));
  EXPECT_THAT(kModel.Describe({4, 2, 8, 22}), HasSubstr("every 22nd"));
}

}  // namespace planner_test
}  // namespace ptqwatch::internal
