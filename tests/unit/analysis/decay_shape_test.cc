#include "analysis/decay_shape.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace decay_shape_test {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr DecayShape kShapes[] = {DecayShape::kLinear, DecayShape::kOneMinusSqrt,
                                  DecayShape::kCosine};

TEST(MergeWeights, OfALinearDecayAreThoseOfTheMean) {
  EXPECT_THAT(MergeWeights(DecayShape::kLinear, 4),
              ElementsAre(DoubleNear(0.25, 1e-15), DoubleNear(0.25, 1e-15), DoubleNear(0.25, 1e-15),
                          DoubleNear(0.25, 1e-15)));
}

TEST(MergeWeights, AreTheDifferencesOfTheShape) {
  EXPECT_THAT(
      MergeWeights(DecayShape::kCosine, 3),
      ElementsAre(DoubleNear(0.25, 1e-15), DoubleNear(0.5, 1e-15), DoubleNear(0.25, 1e-15)));
  EXPECT_THAT(MergeWeights(DecayShape::kOneMinusSqrt, 4),
              ElementsAre(DoubleNear(0.5, 1e-15), DoubleNear(std::sqrt(0.5) - 0.5, 1e-15),
                          DoubleNear(std::sqrt(0.75) - std::sqrt(0.5), 1e-15),
                          DoubleNear(1 - std::sqrt(0.75), 1e-15)));
}

// Theorem of WSM (arXiv 2507.17634): update i counts with the sum of the weights from i on, which
// is the rate of the decay there.
TEST(MergeWeights, AddUpToTheRateOfEveryUpdate) {
  for (const DecayShape shape : kShapes) {
    for (const size_t count : {1, 2, 3, 6, 64}) {
      const std::vector<double> weights = MergeWeights(shape, count);
      ASSERT_EQ(weights.size(), count);
      for (size_t i = 0; i < count; ++i) {
        const auto from = weights.begin() + static_cast<std::ptrdiff_t>(i);
        EXPECT_NEAR(std::accumulate(from, weights.end(), 0.0),
                    ShapeAt(shape, static_cast<double>(i) / static_cast<double>(count)), 1e-14)
            << ToString(shape) << " " << i << " of " << count;
        EXPECT_GT(weights[i], 0);
      }
    }
  }
}

int CountOf(int64_t window) { return static_cast<int>(MergesOf(window).size()); }

TEST(MergesOf, HasDurationsOfThreeSnapshotsAndMore) {
  EXPECT_EQ(CountOf(2), 0);
  EXPECT_EQ(CountOf(3), 2);
  EXPECT_EQ(CountOf(4), 2);
  EXPECT_EQ(CountOf(6), 5);
  EXPECT_EQ(CountOf(12), 8);
  EXPECT_EQ(CountOf(64), 8);
  const std::vector<Merge> merges = MergesOf(6);
  EXPECT_EQ(merges.front().shape, DecayShape::kOneMinusSqrt);
  EXPECT_EQ(merges.front().snapshots, 6);
  EXPECT_EQ(merges.back().shape, DecayShape::kLinear);
  EXPECT_EQ(merges.back().snapshots, 3);
}

}  // namespace decay_shape_test
}  // namespace ptqwatch::internal
