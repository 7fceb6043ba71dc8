#include "statistics.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::examples {
namespace statistics_test {

TEST(Statistics, MeanAndSpread) {
  const std::vector<double> values = {1, 2, 6};
  EXPECT_DOUBLE_EQ(Mean(values), 3);
  EXPECT_DOUBLE_EQ(StandardDeviation(values), std::sqrt(7));
  EXPECT_TRUE(std::isnan(Mean({})));
  EXPECT_TRUE(std::isnan(StandardDeviation({values.data(), 1})));
}

TEST(Spearman, SeesOrderAlone) {
  const std::vector<double> x = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Spearman(x, std::vector<double>{1, 10, 100, 1000}), 1);
  EXPECT_DOUBLE_EQ(Spearman(x, std::vector<double>{4, 3, 2, -7}), -1);
  // 1 - 6 sum d^2 / (n (n^2 - 1)) with d = 0, 1, 1, 0.
  EXPECT_DOUBLE_EQ(Spearman(x, std::vector<double>{1, 3, 2, 4}), 0.8);
}

TEST(Spearman, TiesShareTheirRank) {
  // Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3.
  EXPECT_NEAR(Spearman(std::vector<double>{1, 2, 2, 3}, std::vector<double>{1, 2, 3, 4}),
              4.5 / std::sqrt(4.5 * 5), 1e-12);
}

TEST(Spearman, HasNoValueWhereNothingVaries) {
  EXPECT_TRUE(std::isnan(Spearman(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3})));
  EXPECT_TRUE(std::isnan(Spearman({}, {})));
}

TEST(StudentQuantile, IsThatOfTables) {
  EXPECT_DOUBLE_EQ(StudentQuantile(2), 4.303);
  EXPECT_DOUBLE_EQ(StudentQuantile(30), 2.042);
  EXPECT_NEAR(StudentQuantile(40), 2.0211, 1e-3);
  EXPECT_NEAR(StudentQuantile(120), 1.9799, 1e-3);
}

TEST(FitLine, FindsALine) {
  const LineFit fit = FitLine(std::vector<double>{0, 1, 2}, std::vector<double>{5, 3, 1});
  EXPECT_DOUBLE_EQ(fit.slope, -2);
  EXPECT_NEAR(fit.half_width, 0, 1e-12);
}

TEST(FitLine, SaysHowSureItIs) {
  // Residuals 1, -2, 1 of the mean: s^2 = 6 with one degree of freedom, and 12.706 s / sqrt(2).
  const LineFit fit = FitLine(std::vector<double>{0, 1, 2}, std::vector<double>{1, -2, 1});
  EXPECT_DOUBLE_EQ(fit.slope, 0);
  EXPECT_NEAR(fit.half_width, 12.706 * std::sqrt(6.0 / 2), 1e-9);
  EXPECT_TRUE(std::isnan(FitLine(std::vector<double>{0, 1}, std::vector<double>{1, 2}).half_width));
}

TEST(Order, IsStrictAndRefusesNaN) {
  EXPECT_TRUE(IsRising(std::vector<double>{1, 2, 3}));
  EXPECT_FALSE(IsRising(std::vector<double>{1, 2, 2}));
  EXPECT_TRUE(IsFalling(std::vector<double>{3, 2, 1}));
  EXPECT_FALSE(IsFalling(std::vector<double>{3, std::nan(""), 1}));
}

}  // namespace statistics_test
}  // namespace ptqwatch::examples
