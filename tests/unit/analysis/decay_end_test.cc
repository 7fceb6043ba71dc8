#include "analysis/decay_end.h"

#include <gmock/gmock.h>

#include <cmath>

namespace ptqwatch::internal {
namespace decay_end_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LengthPrior kPrior{.slope = 0.15, .slope_stddev = 0.06, .scatter = 0.09};

CooldownOptions Options() {
  CooldownOptions options;
  options.settle_steps = 50;
  return options;
}

SimulatedDecay Decay(int64_t steps, double error) {
  SimulatedDecay decay;
  decay.steps = steps;
  decay.status = ProbeStatus::kOk;
  decay.loss_nats = 1.6;
  decay.trace = 300;
  decay.quantization = {{QuantizationMethod::kRtn, 4, 0.2 * error, 0.001},
                        {QuantizationMethod::kGptq, 3, error, 0.001}};
  return decay;
}

TEST(PlanDecays, TakesSharesOfThePlannedOne) {
  EXPECT_THAT(PlanDecays(Options(), 800),
              ElementsAre(DecayPlan{50, 100}, DecayPlan{50, 200}, DecayPlan{50, 400}));
}

TEST(PlanDecays, SimulatesNoLengthTwiceAndNoneWithoutSteps) {
  EXPECT_THAT(PlanDecays(Options(), 3), ElementsAre(DecayPlan{1, 1}, DecayPlan{2, 2}));
  EXPECT_THAT(PlanDecays(Options(), 1), ElementsAre(DecayPlan{1, 1}));
}

TEST(SimulatedRate, FallsFromTheFullRateTowardsTheLast) {
  CooldownOptions options = Options();
  const DecayPlan decay{10, 100};
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 0), 0.2);
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 50), 0.1);
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 99), 0.002);
  options.final_ratio = 0.1;
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 50), 0.11);
  options.final_ratio = 0;
  options.shape = DecayShape::kOneMinusSqrt;
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 25), 0.1);
  options.shape = DecayShape::kCosine;
  EXPECT_DOUBLE_EQ(SimulatedRate(options, decay, 0.2, 50), 0.1);
}

TEST(SimulatedRate, WarmsANewOptimizerUp) {
  const DecayPlan decay{50, 100};
  EXPECT_DOUBLE_EQ(SimulatedRate(Options(), decay, 0.2, -50), 0.02);
  EXPECT_DOUBLE_EQ(SimulatedRate(Options(), decay, 0.2, -46), 0.1);
  EXPECT_DOUBLE_EQ(SimulatedRate(Options(), decay, 0.2, -41), 0.2);
  EXPECT_DOUBLE_EQ(SimulatedRate(Options(), decay, 0.2, -1), 0.2);
}

TEST(ExtrapolateEnd, FollowsTheMeasuredSlopeAsFarAsItIsSure) {
  // By a fifth for each doubling, where the prior says 0.15 of the logarithm.
  const double slope = std::log(1.2);
  std::vector<EndPoint> points;
  for (const double share : {0.125, 0.25, 0.5}) {
    points.push_back({share, 0.1 * std::exp(slope * std::log2(share)), 0});
  }
  const auto end = ExtrapolateEnd(points, kPrior);
  ASSERT_TRUE(end);
  EXPECT_NEAR(end->value, 0.1, 0.005);
  EXPECT_LT(end->value, 0.1);
  const LengthPrior sure{.slope = 0.15, .slope_stddev = 10, .scatter = 0.09};
  EXPECT_NEAR(ExtrapolateEnd(points, sure)->value, 0.1, 1e-6);
}

TEST(ExtrapolateEnd, OneLengthAloneTakesThePriorsSlope) {
  const std::vector<EndPoint> point = {{0.25, 0.08, 0}};
  const auto end = ExtrapolateEnd(point, kPrior);
  ASSERT_TRUE(end);
  EXPECT_NEAR(end->value, 0.08 * std::exp(2 * 0.15), 1e-9);
  const double sigma = std::sqrt(2 * 0.09 * 0.09 + 4 * 0.06 * 0.06);
  EXPECT_NEAR(std::log(end->high / end->value), 1.96 * sigma, 1e-6);
  EXPECT_NEAR(std::log(end->value / end->low), 1.96 * sigma, 1e-6);
}

TEST(ExtrapolateEnd, IsSurerTheLongerTheSimulatedDecays) {
  double before = 1e9;
  for (const double share : {0.0625, 0.25, 1.0}) {
    const std::vector<EndPoint> point = {{share, 0.08, 0}};
    const auto end = ExtrapolateEnd(point, kPrior);
    EXPECT_LT(end->high - end->low, before);
    before = end->high - end->low;
  }
}

TEST(ExtrapolateEnd, LeavesOutWhatHasNoLogarithm) {
  EXPECT_FALSE(ExtrapolateEnd({}, kPrior));
  for (const double value : {0.0, -0.01, std::nan(""), double{INFINITY}}) {
    const std::vector<EndPoint> point = {{0.5, value, 0}};
    EXPECT_FALSE(ExtrapolateEnd(point, kPrior)) << value;
  }
}

TEST(PredictEnd, GivesEveryQuantizerLossAndTrace) {
  PredictedEnd end;
  end.decay_steps = 800;
  end.decays = {Decay(100, 0.05), Decay(200, 0.06), Decay(400, 0.07)};
  PredictEnd(end);
  EXPECT_EQ(end.status, ProbeStatus::kOk);
  ASSERT_EQ(end.quantization.size(), 2u);
  EXPECT_EQ(end.quantization[1].method, QuantizationMethod::kGptq);
  EXPECT_GT(*end.quantization[1].error_ratio, 0.07);
  EXPECT_LT(*end.quantization[1].error_low_ratio, *end.quantization[1].error_ratio);
  EXPECT_GT(*end.quantization[1].error_high_ratio, *end.quantization[1].error_ratio);
  EXPECT_NEAR(*end.loss_nats, 1.6, 0.05);
  EXPECT_GT(*end.trace, 300);
}

TEST(PredictEnd, TakesWhatWasMeasuredIfALengthFailed) {
  PredictedEnd end;
  end.decay_steps = 800;
  end.decays = {Decay(100, 0.05), Decay(200, 0.06)};
  end.decays[1].status = ProbeStatus::kNonFinite;
  end.status = ProbeStatus::kOutOfTime;
  PredictEnd(end);
  EXPECT_EQ(end.status, ProbeStatus::kOk);
  EXPECT_NEAR(*end.quantization[1].error_ratio, 0.05 * std::exp(3 * 0.15), 1e-3);
  end.decays.clear();
  end.status = ProbeStatus::kOutOfTime;
  PredictEnd(end);
  EXPECT_EQ(end.status, ProbeStatus::kOutOfTime);
  EXPECT_TRUE(end.quantization.empty());
}

TEST(DescribePrediction, NamesTheWatchedQuantizerWithItsInterval) {
  PredictedEnd end;
  end.step = 8000;
  end.decay_steps = 3200;
  end.loss_nats = 1.58;
  end.quantization = {{QuantizationMethod::kRtn, 3, 0.15, 0.11, 0.2},
                      {QuantizationMethod::kGptq, 3, 0.088, 0.071, 0.109}};
  EXPECT_EQ(DescribePrediction(end),
            "step 8000, a decay of 3200 steps: gptq3 error would end at 8.8 % (7.1-11 %), loss "
            "1.580");
  end.quantization.clear();
  EXPECT_EQ(DescribePrediction(end), "step 8000, a decay of 3200 steps, loss 1.580");
}

}  // namespace decay_end_test
}  // namespace ptqwatch::internal
