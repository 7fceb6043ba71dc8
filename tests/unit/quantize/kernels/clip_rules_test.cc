#include "quantize/kernels/clip_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quantize/kernels/grid.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace clip_rules_test {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::Matrix;
using testing::RandomMatrix;

QuantizerSpec Spec(ClipSearch clip, double value, int group_size = -1) {
  QuantizerSpec spec;
  spec.method = QuantizationMethod::kRtn;
  spec.bits = 4;
  spec.group_size = group_size;
  spec.narrow_range = true;
  spec.clip = clip;
  spec.clip_value = value;
  return spec;
}

float LimitOf(const std::vector<float>& weights, ClipSearch clip, double value) {
  return ClipRuleOf(Spec(clip, value)).limit(weights.data(), std::ssize(weights), value);
}

TEST(ClipRules, AreInTheOrderOfTheEnum) {
  for (ClipSearch clip :
       {ClipSearch::kNone, ClipSearch::kMse, ClipSearch::kPercentile, ClipSearch::kStd}) {
    EXPECT_EQ(ClipRuleOf(Spec(clip, 1)).name, ToString(clip));
  }
  EXPECT_EQ(ClipRules().size(), 4u);
  EXPECT_STREQ(ClipRuleOf(Spec(static_cast<ClipSearch>(9), 1)).name, "none");
}

// By hand: |w| sorted is 1, 2, 4, 8, and rank 1.5 lies between 2 and 4.
TEST(ClipRules, InterpolateBetweenMagnitudes) {
  const std::vector<float> w = {-8, 1, 4, -2};
  EXPECT_EQ(LimitOf(w, ClipSearch::kPercentile, 50), 3);
  EXPECT_EQ(LimitOf(w, ClipSearch::kPercentile, 100), 8);
  EXPECT_EQ(LimitOf(w, ClipSearch::kPercentile, 200.0 / 3), 4);
  EXPECT_FLOAT_EQ(LimitOf(w, ClipSearch::kPercentile, 25), 1.75f);
  EXPECT_FLOAT_EQ(LimitOf(w, ClipSearch::kPercentile, 90), 6.8f);
}

// Ranks near the end are found by other means than those further down.
TEST(ClipRules, FindEveryRankOfEveryLength) {
  for (int64_t n : {1, 2, 3, 9, 10, 33, 100, 257}) {
    Matrix m = RandomMatrix(1, n, static_cast<uint64_t>(n));
    for (size_t i = 3; i < m.values.size(); i += 5) m.values[i] = -m.values[i - 3];  // repeats
    for (int64_t rank = 1; rank < n; ++rank) {
      for (double shift : {0.0, 0.3, 0.7}) {
        const double value = 100 * (static_cast<double>(rank) - shift) / static_cast<double>(n - 1);
        const QuantizerSpec spec = Spec(ClipSearch::kPercentile, value);
        ASSERT_EQ(LimitOf(m.values, spec.clip, value), testing::ClipLimit(m.values, spec))
            << n << " " << value;
      }
    }
    EXPECT_EQ(LimitOf(m.values, ClipSearch::kPercentile, 100),
              std::abs(*std::max_element(m.values.begin(), m.values.end(), [](float a, float b) {
                return std::abs(a) < std::abs(b);
              })));
  }
}

TEST(ClipRules, CountDeviationsWithOneLessThanTheWeights) {
  // Mean 5, squares of differences 16 + 4 + 0 + 20 = 40, over 3.
  EXPECT_FLOAT_EQ(LimitOf({1, 3, 5, 11}, ClipSearch::kStd, 3), 3 * std::sqrt(56.0f / 3));
  for (int64_t n : {2, 3, 7, 8, 9, 40, 1000}) {
    Matrix m = RandomMatrix(1, n, static_cast<uint64_t>(n));
    for (const float offset : {0.0f, 1000.0f}) {
      for (float& w : m.values) w += offset;
      for (double value : {0.5, 12.85}) {
        const QuantizerSpec spec = Spec(ClipSearch::kStd, value);
        EXPECT_EQ(LimitOf(m.values, spec.clip, value), testing::ClipLimit(m.values, spec)) << n;
      }
    }
  }
}

Grid Fit(const Matrix& m, const QuantizerSpec& spec, int64_t* clipped = nullptr) {
  Grid grid = EmptyGrid(m.rows, m.cols, spec);
  for (int64_t r = 0; r < m.rows; ++r) {
    EXPECT_TRUE(FitRow(m.values.data() + r * m.cols, r, &grid, clipped));
  }
  return grid;
}

TEST(ClipRules, GiveEachGroupItsOwnRange) {
  const Matrix m = RandomMatrix(9, 75, 4);
  for (const bool narrow : {false, true}) {
    for (QuantizerSpec spec :
         {Spec(ClipSearch::kPercentile, 90, 20), Spec(ClipSearch::kStd, 1.5, 20),
          Spec(ClipSearch::kStd, 12.85, -1)}) {
      spec.narrow_range = narrow;
      int64_t clipped = 0;
      const Grid grid = Fit(m, spec, &clipped);
      int64_t smaller = 0;
      for (int64_t r = 0; r < m.rows; ++r) {
        for (int64_t g = 0; g < grid.groups; ++g) {
          const auto from = m.values.begin() + r * m.cols + grid.GroupBegin(g);
          const std::vector<float> w(from, from + grid.GroupCount(g));
          const testing::GroupGrid expected(w, spec);
          ASSERT_EQ(grid.scale[static_cast<size_t>(r * grid.groups + g)], expected.scale);
          ASSERT_EQ(grid.zero[static_cast<size_t>(r * grid.groups + g)], 8);
          const auto largest = [](float a, float b) { return std::abs(a) < std::abs(b); };
          smaller += testing::ClipLimit(w, spec) <
                     std::abs(*std::max_element(w.begin(), w.end(), largest));
        }
      }
      EXPECT_EQ(clipped, smaller);
      EXPECT_EQ(clipped > 0, spec.clip_value != 12.85);
    }
  }
}

// A rule without a positive range covers max|w|.
TEST(ClipRules, LeaveGroupsWithoutSpreadAlone) {
  const auto scale_of = [](const std::vector<float>& row, ClipSearch clip, double value) {
    Matrix m(1, std::ssize(row));
    m.values = row;
    int64_t clipped = 0;
    const Grid grid = Fit(m, Spec(clip, value), &clipped);
    EXPECT_EQ(clipped, 0);
    return grid.scale[0];
  };
  for (const ClipSearch clip : {ClipSearch::kPercentile, ClipSearch::kStd}) {
    EXPECT_EQ(scale_of({0, 0, -0.0f}, clip, 50), 1.0f / 7);  // as without a rule
    EXPECT_EQ(scale_of({-3.5f}, clip, 50), 0.5f);
    EXPECT_EQ(scale_of({0}, clip, 50), 1.0f / 7);
  }
  EXPECT_EQ(scale_of({3.5f, 3.5f, 3.5f}, ClipSearch::kStd, 5), 0.5f);
  EXPECT_EQ(scale_of({0, 0, 0, 0, -7}, ClipSearch::kPercentile, 50), 1);
}

TEST(ClipRules, SeeOverflowsAndNumbersThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto fits = [](const std::vector<float>& row, const QuantizerSpec& spec) {
    Grid grid = EmptyGrid(1, std::ssize(row), spec);
    return FitRow(row.data(), 0, &grid);
  };
  for (const ClipSearch clip : {ClipSearch::kPercentile, ClipSearch::kStd}) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      EXPECT_FALSE(fits({1, bad, 2, 1, 0}, Spec(clip, 50))) << bad;
    }
  }
  // Squares that float32 cannot hold are no reason; deviations that it cannot hold are.
  EXPECT_TRUE(fits({1e30f, -1e30f}, Spec(ClipSearch::kStd, 3)));
  EXPECT_FALSE(fits({1e30f, -1e30f}, Spec(ClipSearch::kStd, 1e10)));
  QuantizerSpec half = Spec(ClipSearch::kStd, 1e6);
  half.scale_dtype = ScaleDtype::kFloat16;
  EXPECT_FALSE(fits({1, -1}, half));
}

// The weight is searched for numbers that are not finite before a rule meets it.
TEST(ClipRules, NameTheWeightThatIsNotFinite) {
  Matrix m = RandomMatrix(3, 40, 8);
  m.at(1, 7) = std::nanf("");
  for (const ClipSearch clip : {ClipSearch::kPercentile, ClipSearch::kStd}) {
    const QuantizedWeight got = testing::RunOk(m, nullptr, Spec(clip, 50));
    EXPECT_EQ(got.status, LayerStatus::kNonFinite);
    EXPECT_EQ(got.status_detail, "weight[1, 7] is nan");
  }
}

TEST(ClipRules, RtnRoundsToTheirGridsAndCountsThem) {
  const Matrix m = RandomMatrix(21, 150, 9);
  for (const QuantizerSpec& spec :
       {Spec(ClipSearch::kPercentile, 99, 32), Spec(ClipSearch::kStd, 2, 32)}) {
    const QuantizedWeight got = testing::RunOk(m, nullptr, spec);
    int64_t clipped = 0;
    EXPECT_EQ(got.scale, Fit(m, spec, &clipped).scale);
    EXPECT_EQ(got.clipped_groups, clipped);
    EXPECT_GT(clipped, 50);
    for (size_t i = 0; i < got.codes.size(); ++i) {
      const size_t g = i / 150 * 5 + i % 150 / 32;
      const float steps = std::nearbyint(m.values[i] / got.scale[g]);
      ASSERT_EQ(got.codes[i], 8 + std::clamp(steps, -7.0f, 7.0f)) << i;
      ASSERT_EQ(got.dequantized[i], got.scale[g] * std::clamp(steps, -7.0f, 7.0f)) << i;
    }
  }
}

}  // namespace clip_rules_test
}  // namespace ptqwatch::internal
