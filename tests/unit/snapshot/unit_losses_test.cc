#include "snapshot/unit_losses.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"

namespace ptqwatch::internal {
namespace unit_losses_test {

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

// A standard error counts units: those without a token would make it too small.
TEST(SumByUnit, LeavesOutSequencesThatAreMasked) {
  const Batch batch = {at::zeros({3, 2}, at::kLong)};
  at::Tensor weights = at::ones({3, 2});
  weights[0].fill_(0);
  weights[1][0] = 0.5;
  const auto losses = SumByUnit({at::ones({3, 2}), weights}, batch);
  ASSERT_TRUE(losses.ok());
  EXPECT_THAT(losses->sum, ElementsAre(1.5, 2));
  EXPECT_THAT(losses->weight, ElementsAre(1.5, 2));
  EXPECT_EQ(losses->tokens, 4);

  LossValues with_examples(at::ones({3, 2}), weights);
  with_examples.correct = at::ones({3});
  const auto all = SumByUnit(with_examples, batch);
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(all->weight, ElementsAre(0, 1.5, 2));
  with_examples.correct[0] = std::nan("");
  const auto some = SumByUnit(with_examples, batch);
  ASSERT_TRUE(some.ok());
  EXPECT_THAT(some->weight, ElementsAre(1.5, 2));
  EXPECT_THAT(some->examples, ElementsAre(1, 1));
  EXPECT_THAT(some->correct, ElementsAre(1, 1));

  const auto none = SumByUnit({at::ones({3, 2}), at::zeros({3, 2})}, batch);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->sum.empty());
  EXPECT_EQ(none->tokens, 0);
}

LossValues WithCorrect(at::Tensor values, at::Tensor correct) {
  LossValues losses(std::move(values));
  losses.correct = std::move(correct);
  return losses;
}

TEST(SumByUnit, CountsTheExamplesThatAreRight) {
  const auto without = SumByUnit(at::ones({2, 3}), kTokens);
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(without->correct.empty());
  EXPECT_TRUE(without->examples.empty());

  // Any shape, with or without examples that do not count.
  at::Tensor correct = at::ones({2, 2});
  correct[0][1] = std::nan("");
  correct[1][0] = 0;
  const auto some = SumByUnit(WithCorrect(at::ones({2, 3}), correct), kTokens);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(some->correct, ElementsAre(1, 1));
  EXPECT_THAT(some->examples, ElementsAre(1, 2));

  const auto yes_or_no = SumByUnit(WithCorrect(at::ones({2}), at::ones({2}, at::kBool)), kTokens);
  ASSERT_TRUE(yes_or_no.ok()) << yes_or_no.status();
  EXPECT_THAT(yes_or_no->correct, ElementsAre(1, 1));

  const auto mean = SumByUnit(WithCorrect(at::ones({}), at::ones({2, 3})), kTokens);
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_THAT(mean->examples, ElementsAre(6));
}

TEST(SumByUnit, RefusesCorrectOfOtherSequencesOrValues) {
  const auto refuse = [](const at::Tensor& correct, const std::string& why) {
    const auto losses = SumByUnit(WithCorrect(at::ones({2, 3}), correct), kTokens);
    ASSERT_EQ(losses.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(losses.status().message()), HasSubstr("LossValues::correct"));
    EXPECT_THAT(std::string(losses.status().message()), HasSubstr(why));
  };
  refuse(at::ones({6}), "[6]");
  refuse(at::ones({}), "[]");
  refuse(at::full({2, 3}, 2), "a value of 2");
  refuse(at::full({2, 3}, -0.5), "a value of -0.5");
  refuse(at::full({2, 3}, std::numeric_limits<double>::infinity()), "a value of inf");
  refuse(at::ones({2, 3}, at::kComplexFloat), "complex");
}

TEST(SumByUnit, RefusesOtherShapesAndTypes) {
  const auto refuse = [](const LossValues& values, const std::string& why) {
    const auto losses = SumByUnit(values, kTokens);
    ASSERT_EQ(losses.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(losses.status().message()), HasSubstr(why));
  };
  refuse(at::ones({2, 3, 1}), "[2, 3, 1]");
  refuse(at::ones({6}), "[6]");  // tokens flattened: the unit would be lost
  refuse(at::ones({2, 3}, at::kLong), "values of type Long; they must be floating-point");
  refuse(at::ones({2, 0}), "[2, 0]");
  refuse({at::ones({2, 3}), at::ones({2})}, "weights of shape [2]");
}

TEST(TotalWeight, CountsTheLossesWithoutWeights) {
  EXPECT_EQ(TotalWeight(at::ones({2, 3})), 6);
  EXPECT_EQ(TotalWeight({at::ones({2}), at::tensor({0.5, 0.0})}), 0.5);
}

}  // namespace unit_losses_test
}  // namespace ptqwatch::internal
