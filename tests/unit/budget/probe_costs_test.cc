#include "budget/probe_costs.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace probe_costs_test {

constexpr Plan kPlan{.probe_batches = 4, .calibration_batches = 2, .curvature_every = 2};
constexpr Plan kWithCurvature{
    .probe_batches = 4, .calibration_batches = 2, .curvature_sequences = 8, .curvature_every = 2};

SnapshotCosts Costs() {
  return SnapshotCosts({{.probe = "each", .fixed = 1, .probe_batch = 2, .calibration_batch = 3},
                        {.probe = "rare", .with_curvature = true, .curvature_sequence = 0.5},
                        {.probe = "new"}});
}

TEST(SnapshotCosts, AddsWhatThePlanAsksFor) {
  const SnapshotCosts costs = Costs();
  EXPECT_EQ(costs.EverySnapshot(kPlan), 1 + 4 * 2 + 2 * 3);
  EXPECT_EQ(costs.WithCurvature(kPlan), 0);
  EXPECT_EQ(costs.WithCurvature(kWithCurvature), 8 * 0.5);
}

TEST(SnapshotCosts, LearnsHalfOfTheWayAndEachProbeByItself) {
  SnapshotCosts costs = Costs();
  costs.Learn({kWithCurvature, {{"each", 4 * 15.0}, {"rare", 4 / 4.0}}});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kPlan), 2 * 15);
  EXPECT_DOUBLE_EQ(costs.EverySnapshot({}), 2 * 1);
  EXPECT_DOUBLE_EQ(costs.WithCurvature(kWithCurvature), 4 / 2.0);
}

TEST(SnapshotCosts, LearnsOnlyTooSmallCostsFromWorkThatWasCutShort) {
  SnapshotCosts costs = Costs();
  costs.Learn({kWithCurvature, {{"each", 4 * 15.0}, {"rare", 0.1}}, /*cut_short=*/true});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kPlan), 2 * 15);
  EXPECT_DOUBLE_EQ(costs.WithCurvature(kWithCurvature), 4);
}

TEST(SnapshotCosts, TakesAtOnceWhatWasNotKnown) {
  SnapshotCosts costs = Costs();
  costs.Learn({kPlan, {{"new", 7}, {"unheard of", 5}}});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kPlan), 15 + 7 + 5);
  // Nearly nothing, because there was nothing to measure, and then the real cost.
  costs.Learn({kPlan, {{"new", 1e-6}}});
  EXPECT_LT(costs.EverySnapshot(kPlan), 15 + 5 + 1);
  costs.Learn({kPlan, {{"new", 7}}});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kPlan), 15 + 7 + 5);
}

TEST(SnapshotCosts, CountsMergesAndLearnsFromThemAlone) {
  SnapshotCosts costs(
      {{.probe = "merges", .of_each = &Plan::merges, .fixed = 1, .probe_batch = 2}});
  constexpr Plan kMerges{.probe_batches = 4, .merges = 3};
  EXPECT_EQ(costs.EverySnapshot(kMerges), 3 * 9);
  EXPECT_EQ(costs.EverySnapshot(kPlan), 0);
  costs.Learn({kPlan, {{"merges", 1e-6}}});
  EXPECT_EQ(costs.EverySnapshot(kMerges), 3 * 9);
  costs.Learn({kMerges, {{"merges", 4 * 3 * 9.0}}});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kMerges), 2 * 3 * 9);
}

TEST(SnapshotCosts, CountsFurtherSetsLikewise) {
  const SnapshotCosts costs({{.probe = "sets", .of_each = &Plan::further_probe_sets, .fixed = 3}});
  EXPECT_EQ(costs.EverySnapshot({.probe_batches = 4, .further_probe_sets = 2}), 6);
  EXPECT_EQ(costs.EverySnapshot({.probe_batches = 4, .merges = 2}), 0);
}

TEST(SnapshotCosts, CountsAProbeThatWorksWithoutCurvatureAtEverySnapshot) {
  SnapshotCosts costs = Costs();
  costs.Learn({kPlan, {{"rare", 3}}});
  EXPECT_DOUBLE_EQ(costs.EverySnapshot(kPlan), 15 + 3);
}

}  // namespace probe_costs_test
}  // namespace ptqwatch::internal
