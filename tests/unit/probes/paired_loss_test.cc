#include "probes/paired_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace ptqwatch::internal {
namespace paired_loss_test {

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

TEST(EstimateDifference, GivesDifferenceAndPairedError) {
  // By hand: r = 10 / 5 = 2 with residuals {-1, 0, 1} / 5, and 6 / 4 = 1.5 with {0.5, 0.5, -1} / 4.
  const RatioEstimate estimate = EstimateDifference({{1, 4, 5}, {1, 2, 2}}, {{2, 2, 2}, {1, 1, 2}});
  EXPECT_DOUBLE_EQ(estimate.value, -0.5);
  const double squares = 0.325 * 0.325 + 0.125 * 0.125 + 0.45 * 0.45;
  EXPECT_DOUBLE_EQ(estimate.stderr_value, std::sqrt(1.5 * squares));
}

TEST(EstimateDifference, OfEqualDenominatorsIsTheRatioOfTheDifference) {
  const std::vector<double> weight{3, 5, 4, 2};
  const RatioEstimate estimate = EstimateDifference({{1, 2, 6, 2}, weight}, {{4, 3, 5, 1}, weight});
  const RatioEstimate ratio = EstimateRatio({3, 1, -1, -1}, weight);
  EXPECT_NEAR(estimate.value, ratio.value, 1e-15);
  EXPECT_NEAR(estimate.stderr_value, ratio.stderr_value, 1e-15);
}

TEST(EstimateDifference, OfARatioAndItselfIsZeroWithoutError) {
  const RatioTerms terms{{1, 4, 5}, {1, 2, 2}};
  EXPECT_EQ(EstimateDifference(terms, terms).value, 0);
  EXPECT_EQ(EstimateDifference(terms, terms).stderr_value, 0);
}

TEST(EstimateDifference, OneUnitHasNoStandardError) {
  EXPECT_TRUE(std::isinf(EstimateDifference({{1.0}, {2.0}}, {{3.0}, {2.0}}).stderr_value));
}

TEST(EstimateDifference, StandardErrorMatchesScatterOverManyDraws) {
  // 400 samples of 64 units, from a fixed linear congruential stream, whose difficulty is common to
  // both ratios. Two independent errors would be several times as large.
  uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  double sum = 0;
  double squares = 0;
  double claimed = 0;
  double independent = 0;
  constexpr int kSamples = 400;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> first(64), second(64), loss_of_first(64), loss_of_second(64);
    for (size_t i = 0; i < first.size(); ++i) {
      const double difficulty = 1 + 5 * uniform();
      loss_of_first[i] = 5 + 2 * difficulty;
      loss_of_second[i] = 4 + 2 * difficulty + 0.1 * uniform();
      first[i] = 0.5 * difficulty + 0.2 * uniform();
      second[i] = 0.6 * difficulty + 0.2 * uniform();
    }
    const RatioTerms a{first, loss_of_first};
    const RatioTerms b{second, loss_of_second};
    const RatioEstimate estimate = EstimateDifference(a, b);
    sum += estimate.value;
    squares += estimate.value * estimate.value;
    claimed += estimate.stderr_value * estimate.stderr_value;
    for (const RatioTerms& terms : {a, b}) {
      const double error = EstimateRatio(terms.numerator, terms.denominator).stderr_value;
      independent += error * error;
    }
  }
  const double variance = squares / kSamples - (sum / kSamples) * (sum / kSamples);
  EXPECT_NEAR(std::sqrt(claimed / kSamples), std::sqrt(variance), 0.15 * std::sqrt(variance));
  EXPECT_GT(std::sqrt(independent / kSamples), 2 * std::sqrt(variance));
}

}  // namespace paired_loss_test
}  // namespace ptqwatch::internal
