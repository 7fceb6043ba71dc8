#include "snapshot/average_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"

namespace ptqwatch::internal {
namespace average_weights_test {

// Numbers without a short binary fraction, more than a vector register takes.
at::Tensor Values(double phase, at::ScalarType dtype) {
  return ((at::arange(37, at::kDouble) + phase) * 12.9898).sin().to(dtype);
}

TEST(MeanOf, SumsInFloat64AndRoundsOnce) {
  const std::vector<at::Tensor> values = {Values(1, at::kFloat), Values(2, at::kFloat),
                                          Values(3, at::kFloat)};
  const at::Tensor mean = MeanOf(values);
  ASSERT_EQ(mean.scalar_type(), at::kFloat);
  for (int64_t i = 0; i < mean.numel(); ++i) {
    double sum = 0;
    for (const at::Tensor& value : values) sum += value.const_data_ptr<float>()[i];
    EXPECT_EQ(mean.const_data_ptr<float>()[i], static_cast<float>(sum / 3)) << i;
  }
}

TEST(MeanOf, DoesNotDependOnTheLayout) {
  const std::vector<at::Tensor> rows = {Values(1, at::kFloat).slice(0, 0, 36).view({4, 9}),
                                        Values(5, at::kFloat).slice(0, 0, 36).view({4, 9})};
  const std::vector<at::Tensor> columns = {rows[0].t(), rows[1].t()};
  EXPECT_TRUE(at::equal(MeanOf(rows).t(), MeanOf(columns)));
}

TEST(MeanOf, OfTheSameValuesIsThatValue) {
  // Sums of these fit into float64 without rounding.
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor value = Values(1, dtype);
    const at::Tensor before = value.clone();
    const at::Tensor mean = MeanOf({value, value, value, value, value, value});
    EXPECT_TRUE(at::equal(mean, before)) << dtype;
    EXPECT_TRUE(at::equal(value, before)) << dtype;
    EXPECT_FALSE(mean.is_same(value));
  }
}

TEST(WeightedSumOf, RoundsEveryProductInFloat64AndTheSumOnce) {
  const std::vector<at::Tensor> values = {Values(1, at::kFloat), Values(2, at::kFloat),
                                          Values(3, at::kFloat)};
  const std::vector<at::Tensor> before = {values[0].clone(), values[1].clone(), values[2].clone()};
  const std::vector<double> weights = {0.7, 0.1, 0.2};
  const at::Tensor sum = WeightedSumOf(values, weights);
  ASSERT_EQ(sum.scalar_type(), at::kFloat);
  for (int64_t i = 0; i < sum.numel(); ++i) {
    double expected = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      // Volatile: a compiler may not make one operation of them.
      const volatile double product = weights[j] * values[j].const_data_ptr<float>()[i];
      expected += product;
    }
    EXPECT_EQ(sum.const_data_ptr<float>()[i], static_cast<float>(expected)) << i;
  }
  for (size_t j = 0; j < values.size(); ++j) EXPECT_TRUE(at::equal(values[j], before[j]));
}

TEST(AverageWeights, AveragesEachTensor) {
  const std::vector<std::vector<at::Tensor>> lists = {{at::full({2}, 1.0f), at::full({1}, 10.0)},
                                                      {at::full({2}, 2.0f), at::full({1}, 30.0)}};
  const std::vector<at::Tensor> means = AverageWeights(lists);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_TRUE(at::equal(means[0], at::full({2}, 1.5f)));
  EXPECT_TRUE(at::equal(means[1], at::full({1}, 20.0)));
  const std::vector<at::Tensor> sums = AverageWeights(lists, {0.25, 0.75});
  EXPECT_TRUE(at::equal(sums[0], at::full({2}, 1.75f)));
  EXPECT_TRUE(at::equal(sums[1], at::full({1}, 25.0)));
}

TEST(AddToExponential, BeginsWithTheFirstValueAndRoundsEveryProduct) {
  constexpr double kDecay = 0.7;
  at::Tensor mean;
  std::vector<double> expected;
  for (int snapshot = 0; snapshot < 3; ++snapshot) {
    const at::Tensor value = Values(snapshot, at::kFloat);
    AddToExponential(value, kDecay, mean);
    for (int64_t i = 0; i < value.numel(); ++i) {
      const double w = value.const_data_ptr<float>()[i];
      if (snapshot == 0) {
        expected.push_back(w);
        continue;
      }
      double& m = expected[static_cast<size_t>(i)];
      // Volatile: a compiler may not make one operation of them.
      const volatile double kept = kDecay * m;
      const volatile double share = (1 - kDecay) * w;
      m = kept + share;
    }
  }
  ASSERT_EQ(mean.scalar_type(), at::kDouble);
  for (int64_t i = 0; i < mean.numel(); ++i) {
    EXPECT_EQ(mean.const_data_ptr<double>()[i], expected[static_cast<size_t>(i)]) << i;
  }
}

TEST(AddToExponential, LeavesTheValuesAlone) {
  const at::Tensor first = at::full({3}, 1.0);
  const at::Tensor second = at::full({3}, 2.0);
  at::Tensor mean;
  AddToExponential(first, 0.5, mean);
  AddToExponential(second, 0.5, mean);
  EXPECT_TRUE(at::equal(mean, at::full({3}, 1.5)));
  EXPECT_TRUE(at::equal(first, at::full({3}, 1.0)));
  EXPECT_TRUE(at::equal(second, at::full({3}, 2.0)));
}

}  // namespace average_weights_test
}  // namespace ptqwatch::internal
