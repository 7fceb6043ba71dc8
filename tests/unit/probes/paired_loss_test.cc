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

}  // namespace paired_loss_test
}  // namespace ptqwatch::internal
