#include "probes/weight_noise.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "probes/paired_loss.h"
#include "ptqwatch/report.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace weight_noise_test {

using ::testing::HasSubstr;

double Number(const at::Tensor& scalar) { return scalar.item<double>(); }

TEST(NoisePlan, GivesEachBatchADrawAndRepeatsFewBatches) {
  struct {
    size_t batches, evaluations, draws;
  } const cases[] = {{1, 4, 4}, {2, 4, 4}, {3, 6, 6}, {4, 4, 4}, {7, 7, 7}, {8, 8, 8}, {20, 20, 8}};
  for (const auto& expected : cases) {
    const NoisePlan plan(expected.batches);
    EXPECT_EQ(plan.evaluations, expected.evaluations) << expected.batches;
    EXPECT_EQ(plan.draws, expected.draws) << expected.batches;
  }
  EXPECT_EQ(NoisePlan(0).evaluations, 0u);
}

TEST(NoisyWeight, AddsNormalNumbersOfTheRelativeNorm) {
  const at::Tensor weight = testing::Waves({301, 333}, 0.3, 5);
  const at::Tensor noise =
      (*NoisyWeight(weight, 0.1, "a", 0, {}) - weight).to(at::kDouble).view({-1});
  const auto count = static_cast<double>(weight.numel());
  const double scale = 0.1 * std::sqrt(Number(weight.to(at::kDouble).pow(2).mean()));
  const at::Tensor z = noise / scale;
  EXPECT_NEAR(Number(z.mean()), 0, 4 / std::sqrt(count));
  EXPECT_NEAR(Number(z.pow(2).mean()), 1, 4 * std::sqrt(2 / count));
  EXPECT_NEAR(Number(z.pow(3).mean()), 0, 4 * std::sqrt(15 / count));
  EXPECT_NEAR(Number(z.pow(4).mean()), 3, 4 * std::sqrt(96 / count));
  EXPECT_NEAR(Number((z.abs() > 1.959964).to(at::kDouble).mean()), 0.05,
              4 * std::sqrt(0.05 * 0.95 / count));
  // Neighbours, which come from one random word, are independent.
  EXPECT_NEAR(Number((z.narrow(0, 0, z.numel() - 1) * z.narrow(0, 1, z.numel() - 1)).mean()), 0,
              4 / std::sqrt(count));
}

TEST(NoisyWeight, DependsOnLayerDrawAndSeedAlone) {
  const at::Tensor weight = testing::Waves({24, 31}, 0.3, 5);
  const at::Tensor noisy = *NoisyWeight(weight, 0.1, "a", 0, {});
  EXPECT_TRUE(NoisyWeight(weight, 0.1, "a", 0, {})->equal(noisy));
  // The values count, not how they lie in memory.
  EXPECT_TRUE(NoisyWeight(weight.t().contiguous().t(), 0.1, "a", 0, {})->equal(noisy));
  ExecutionContext seeded;
  seeded.seeds = SeedSource(7);
  const at::Tensor d = noisy - weight;
  for (const at::Tensor& other :
       {*NoisyWeight(weight, 0.1, "b", 0, {}), *NoisyWeight(weight, 0.1, "a", 1, {}),
        *NoisyWeight(weight, 0.1, "a", 0, seeded)}) {
    const at::Tensor e = other - weight;
    const double cosine = Number((d * e).sum()) / (Number(d.norm()) * Number(e.norm()));
    EXPECT_LT(std::abs(cosine), 4 / std::sqrt(24.0 * 31));
  }
}

TEST(NoisyWeight, DoesNotDependOnThreads) {
  const at::Tensor weight =
      testing::Waves({303, 331}, 1, 0);  // several blocks, the last of odd size
  ExecutionContext context;
  const at::Tensor alone = *NoisyWeight(weight, 0.1, "a", 0, context);
  context.threads = 3;
  EXPECT_TRUE(NoisyWeight(weight, 0.1, "a", 0, context)->equal(alone));
}

TEST(NoisyWeight, EndsWhenItIsCancelled) {
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(NoisyWeight(testing::Waves({3, 3}, 1, 0), 0.1, "a", 0, context).status().code(),
            absl::StatusCode::kCancelled);
}

UnitLosses Losses(std::vector<double> sum, double weight) {
  UnitLosses losses;
  losses.weight.assign(sum.size(), weight);
  losses.sum = std::move(sum);
  losses.tokens = 10;
  return losses;
}

TEST(CompareNoise, TakesTheErrorOverDraws) {
  const std::vector<UnitLosses> full(5, Losses({4, 6}, 2));
  std::vector<UnitLosses> noisy;
  const std::vector<double> changes = {0.5, -0.25, 1, 0.75, 0.125};
  for (const double change : changes) noisy.push_back(Losses({4 + change, 6 + 3 * change}, 2));
  const NoiseReport report = CompareNoise(0.25, full, noisy);
  EXPECT_EQ(report.status, ProbeStatus::kOk);
  EXPECT_EQ(report.relative_norm, 0.25);
  EXPECT_EQ(report.draws, 5);
  EXPECT_EQ(report.probe_tokens, 50);
  EXPECT_DOUBLE_EQ(*report.delta_nats, 4 * 2.125 / 20);
  // A draw has the change 4 c and the weight 4: the mean of c, and its ordinary standard error.
  double squares = 0;
  for (const double change : changes) squares += std::pow(change - 2.125 / 5, 2);
  EXPECT_NEAR(*report.delta_stderr_nats, std::sqrt(squares / 4 / 5), 1e-12);
}

TEST(CompareNoise, AddsTheErrorOfTokensThatAllDrawsShare) {
  const std::vector<UnitLosses> full(1, Losses({0, 0, 0}, 1));
  // Changes are u + d, of unit and draw.
  const std::vector<double> units = {1, 2, 6};
  const std::vector<double> draws = {-1, 0, 0.5, 2.5};
  std::vector<UnitLosses> noisy;
  for (const double d : draws)
    noisy.push_back(Losses({units[0] + d, units[1] + d, units[2] + d}, 1));
  const NoiseReport report = CompareNoise(0.1, full, noisy);
  EXPECT_DOUBLE_EQ(*report.delta_nats, 3 + 0.5);
  const std::vector<double> ones(12, 1.0);
  std::vector<double> both;
  for (const double d : draws) {
    for (const double u : units) both.push_back(u + d);
  }
  const auto squared_error = [&](const std::vector<double>& values) {
    const double error =
        EstimateRatio(values, absl::MakeConstSpan(ones).first(values.size())).stderr_value;
    return error * error;
  };
  EXPECT_NEAR(*report.delta_stderr_nats,
              std::sqrt(squared_error(units) + squared_error(draws) - squared_error(both)), 1e-12);
  EXPECT_EQ(report.probe_tokens, 10);
}

TEST(CompareNoise, GivesNoErrorOfOneMeanLoss) {
  const std::vector<UnitLosses> full(1, Losses({1}, 1));
  const std::vector<UnitLosses> noisy = {Losses({2}, 1), Losses({3}, 1), Losses({2}, 1),
                                         Losses({2}, 1)};
  const NoiseReport report = CompareNoise(0.1, full, noisy);
  EXPECT_DOUBLE_EQ(*report.delta_nats, 1.25);
  EXPECT_FALSE(report.delta_stderr_nats);
}

TEST(CompareNoise, SaysWhyThereIsNoNumber) {
  const std::vector<UnitLosses> full(4, Losses({1, 1}, 1));
  std::vector<UnitLosses> noisy(4, Losses({2, 2}, 1));
  noisy[3].sum[1] = std::numeric_limits<double>::infinity();
  NoiseReport report = CompareNoise(0.1, full, noisy);
  EXPECT_EQ(report.status, ProbeStatus::kNonFinite);
  EXPECT_EQ(report.status_detail, "the loss under noise is not finite");
  EXPECT_FALSE(report.delta_nats);
  noisy[3] = Losses({2, 2}, 3);
  report = CompareNoise(0.1, full, noisy);
  EXPECT_EQ(report.status, ProbeStatus::kFailed);
  EXPECT_THAT(report.status_detail, HasSubstr("different weights"));
  const std::vector<UnitLosses> masked(4, Losses({0, 0}, 0));
  EXPECT_THAT(CompareNoise(0.1, masked, masked).status_detail, HasSubstr("masked"));
}

}  // namespace weight_noise_test
}  // namespace ptqwatch::internal
