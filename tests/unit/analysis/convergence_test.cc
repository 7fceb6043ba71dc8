// The step at which the full-precision loss stopped improving, on losses whose truth is known.

#include "analysis/convergence.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "analysis/history.h"
#include "analysis_fixture.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace convergence_test {

constexpr int64_t kEvery = 1000;
constexpr int64_t kStop = 20000;

// 4 (step / 1000)^-0.1 until it stops.
double Falling(int64_t step) { return 4 * std::pow(static_cast<double>(step) / 1000, -0.1); }
double FallingUntilStop(int64_t step) { return Falling(std::min(step, kStop)); }

struct Run {
  std::function<double(int64_t)> loss = FallingUntilStop;
  double scatter = 0;  // of its logarithm
  int64_t steps = 40000;
  std::function<double(int64_t)> rate = [](int64_t) { return kRate; };
  uint64_t seed = 1;
};

std::optional<int64_t> StepOf(const Run& run) {
  std::mt19937_64 random(run.seed);
  std::normal_distribution<double> normal;
  History history;
  for (int64_t step = kEvery; step <= run.steps; step += kEvery) {
    Report report = At(step, 0.1, run.rate(step));
    report.probe_loss_nats = run.loss(step) * std::exp(run.scatter * normal(random));
    history.Add(report);
  }
  return LossConvergedStep(history);
}

struct Found {
  int runs = 0;
  int near = 0;  // within a fifth of the truth
};
Found FoundIn(int runs, Run run) {
  Found found;
  for (int i = 0; i < runs; ++i) {
    run.seed = static_cast<uint64_t>(i + 1);
    const auto step = StepOf(run);
    found.runs += step.has_value();
    found.near += step && std::abs(std::log(static_cast<double>(*step) / kStop)) < 0.2;
  }
  return found;
}

TEST(LossConvergedStep, IsTheFirstSnapshotOfALossThatStands) { EXPECT_EQ(StepOf({}), kStop); }

TEST(LossConvergedStep, IsTheLeastLossOfOneThatRises) {
  const auto loss = [](int64_t step) {
    return step <= kStop ? Falling(step)
                         : Falling(kStop) * std::pow(static_cast<double>(step) / kStop, 0.05);
  };
  EXPECT_EQ(StepOf({.loss = loss}), kStop);
}

TEST(LossConvergedStep, IsAbsentWhileTheLossFalls) {
  EXPECT_EQ(StepOf({.loss = Falling}), std::nullopt);
  EXPECT_EQ(StepOf({.steps = kStop}), std::nullopt);
  EXPECT_EQ(StepOf({.steps = kStop + 3 * kEvery}), std::nullopt);
  EXPECT_EQ(StepOf({.loss = [](int64_t) { return -1.0; }}), std::nullopt);
}

TEST(LossConvergedStep, IsFoundInScatter) {
  const Found found = FoundIn(100, {.scatter = 0.005, .steps = 60000});
  RecordProperty("found", found.runs);
  RecordProperty("near", found.near);
  EXPECT_GE(found.runs, 80);
  EXPECT_GE(found.near, 80);
}

TEST(LossConvergedStep, IsSeldomClaimedOfALossThatFalls) {
  for (const double scatter : {0.002, 0.005, 0.01, 0.02}) {
    const Found found = FoundIn(100, {.loss = Falling, .scatter = scatter, .steps = 60000});
    RecordProperty(std::to_string(scatter), found.runs);
    EXPECT_LE(found.runs, 1) << scatter;
  }
}

TEST(LossConvergedStep, IsAbsentIfScatterHidesIt) {
  EXPECT_LE(FoundIn(20, {.scatter = 0.1}).runs, 1);
}

TEST(LossConvergedStep, StaysWhenADecayMakesTheLossFallAgain) {
  const auto rate = [](int64_t step) { return step <= 40000 ? kRate : kRate / 10; };
  const auto loss = [](int64_t step) {
    return step <= 40000 ? FallingUntilStop(step)
                         : Falling(kStop) * std::pow(static_cast<double>(step) / 40000, -0.3);
  };
  EXPECT_EQ(StepOf({.loss = loss, .steps = 50000, .rate = rate}), kStop);
}

TEST(LossConvergedStep, IsThatOfTheEndOfADecayIfTheLossStoodThere) {
  const auto rate = [](int64_t step) { return step <= 20000 ? kRate : kRate / 10; };
  const auto loss = [](int64_t step) { return Falling(std::min<int64_t>(step, 24000)); };
  EXPECT_EQ(StepOf({.loss = loss, .steps = 60000, .rate = rate}), 24000);
}

}  // namespace convergence_test
}  // namespace ptqwatch::internal
