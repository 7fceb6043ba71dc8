#include "probes/paired_loss.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"

namespace ptqwatch::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Batch kTokens = {at::zeros({2, 3}, at::kLong)};

TEST(SumByUnit, TakesPerTokenPerSequenceAndScalarLosses) {
  const auto per_token = SumByUnit(at::ones({2, 3}), kTokens);
  ASSERT_TRUE(per_token.ok()) << per_token.status();
  EXPECT_THAT(per_token->sum, ElementsAre(3, 3));
  EXPECT_THAT(per_token->weight, ElementsAre(3, 3));
  EXPECT_EQ(per_token->tokens, 6);

  const auto per_sequence = SumByUnit(at::full({2}, 1.5), kTokens);
  ASSERT_TRUE(per_sequence.ok());
  EXPECT_THAT(per_sequence->sum, ElementsAre(1.5, 1.5));
  EXPECT_THAT(per_sequence->weight, ElementsAre(1, 1));
  EXPECT_EQ(per_sequence->tokens, 6);

  const auto scalar = SumByUnit(at::full({}, 2.5), kTokens);
  ASSERT_TRUE(scalar.ok());
  EXPECT_THAT(scalar->sum, ElementsAre(2.5));
  EXPECT_EQ(scalar->tokens, 6);
}

TEST(SumByUnit, LeavesMaskedTokensOutEvenWhenTheyAreNaN) {
  at::Tensor values = at::ones({2, 3});
  values[0][1] = std::nan("");
  at::Tensor weights = at::ones({2, 3});
  weights[0][1] = 0;
  const auto losses = SumByUnit({values, weights}, kTokens);
  ASSERT_TRUE(losses.ok());
  EXPECT_THAT(losses->sum, ElementsAre(2, 3));
  EXPECT_EQ(losses->tokens, 5);
}

TEST(SumByUnit, RefusesOtherShapesAndTypes) {
  const auto refuse = [](const LossValues& values, const std::string& why) {
    const auto losses = SumByUnit(values, kTokens);
    ASSERT_EQ(losses.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(losses.status().message()), HasSubstr(why));
  };
  refuse(at::ones({2, 3, 1}), "[2, 3, 1]");
  refuse(at::ones({6}), "[6]");  // tokens flattened: the unit would be lost
  refuse(at::ones({2, 3}, at::kLong), "floating-point");
  refuse(at::ones({2, 0}), "[2, 0]");
  refuse({at::ones({2, 3}), at::ones({2})}, "weights of shape [2]");
}

TEST(EstimateRatio, GivesRatioAndStandardError) {
  // By hand: r = 10 / 5 = 2, residuals {-1, 0, 1}, se^2 = 3/2 * 2 / 25.
  const RatioEstimate estimate = EstimateRatio({1, 4, 5}, {1, 2, 2});
  EXPECT_DOUBLE_EQ(estimate.value, 2);
  EXPECT_DOUBLE_EQ(estimate.stderr_value, std::sqrt(1.5 * 2 / 25.0));
}

TEST(EstimateRatio, OneUnitHasNoStandardError) {
  EXPECT_TRUE(std::isinf(EstimateRatio({1.0}, {2.0}).stderr_value));
}

TEST(EstimateRatio, StandardErrorMatchesScatterOverManyDraws) {
  // 400 samples of 64 units from a fixed linear congruential stream.
  uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  double sum = 0;
  double squares = 0;
  double claimed = 0;
  constexpr int kSamples = 400;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> top(64);
    std::vector<double> bottom(64);
    for (size_t i = 0; i < top.size(); ++i) {
      bottom[i] = 5 + 10 * uniform();
      top[i] = bottom[i] * 0.1 + uniform();
    }
    const RatioEstimate estimate = EstimateRatio(top, bottom);
    sum += estimate.value;
    squares += estimate.value * estimate.value;
    claimed += estimate.stderr_value * estimate.stderr_value;
  }
  const double variance = squares / kSamples - (sum / kSamples) * (sum / kSamples);
  EXPECT_NEAR(std::sqrt(claimed / kSamples), std::sqrt(variance), 0.15 * std::sqrt(variance));
}

}  // namespace
}  // namespace ptqwatch::internal
