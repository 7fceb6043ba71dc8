#include "snapshot/unit_losses.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>

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

TEST(TotalWeight, CountsTheLossesWithoutWeights) {
  EXPECT_EQ(TotalWeight(at::ones({2, 3})), 6);
  EXPECT_EQ(TotalWeight({at::ones({2}), at::tensor({0.5, 0.0})}), 0.5);
}

}  // namespace
}  // namespace ptqwatch::internal
