#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "unit/quantize/reference.h"

namespace ptqwatch {
namespace gram_magnitudes_test {

using ::testing::Each;
using testing::Matrix;

TEST(GramMagnitudes, SumAndMaximumOverFiniteRows) {
  Matrix x = testing::CorrelatedInputs(1300, 45, 1);
  x.at(3, 44) = std::nanf("");
  x.at(1200, 0) = -std::numeric_limits<float>::infinity();
  const GramStatistics expected = testing::NaiveGram(x);
  const GramStatistics got = testing::Gram(x);
  EXPECT_EQ(got.skipped_rows, 2);
  EXPECT_EQ(got.abs_sum, expected.abs_sum);
  EXPECT_EQ(got.abs_max, expected.abs_max);
}

TEST(GramMagnitudes, AddUpOverCalls) {
  const Matrix x = testing::CorrelatedInputs(300, 20, 2);
  ExecutionContext context;
  GramAccumulator gram(20);
  for (int64_t begin = 0; begin < 300; begin += 100) {
    ASSERT_TRUE(
        gram.Add({.data = x.values.data() + begin * 20, .rows = 100, .cols = 20}, context).ok());
  }
  const GramStatistics got = gram.Take();
  EXPECT_EQ(got.abs_sum, testing::NaiveGram(x).abs_sum);
  EXPECT_EQ(got.abs_max, testing::NaiveGram(x).abs_max);
}

TEST(GramMagnitudes, AreZeroWithoutRows) {
  GramAccumulator gram(4);
  const GramStatistics got = gram.Take();
  EXPECT_EQ(got.abs_sum, std::vector<double>(4, 0.0));
  EXPECT_EQ(got.abs_max, std::vector<float>(4, 0.0f));
}

TEST(GramMagnitudes, AreForgottenWhenCancelled) {
  const Matrix x = testing::CorrelatedInputs(50, 6, 3);
  ExecutionContext context;
  GramAccumulator gram(6);
  ASSERT_TRUE(gram.Add(x.view(), context).ok());
  context.cancel.Cancel();
  EXPECT_EQ(gram.Add(x.view(), context).code(), absl::StatusCode::kCancelled);
  const GramStatistics got = gram.Take();
  EXPECT_THAT(got.abs_sum, Each(0.0));
  EXPECT_THAT(got.abs_max, Each(0.0f));
}

}  // namespace gram_magnitudes_test
}  // namespace ptqwatch
