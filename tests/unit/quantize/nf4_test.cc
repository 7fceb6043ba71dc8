#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace nf4_test {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::RandomMatrix;
using testing::RunOk;

QuantizerSpec Nf4() { return testing::SpecOf(QuantizationMethod::kNf4); }

// The nearest level by distance in float64; a tie goes to the lower one.
int NearestLevel(float x) {
  const std::array<float, 16>& levels = Nf4Levels();
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    const auto distance = [&](int k) {
      return std::abs(static_cast<double>(x) - static_cast<double>(levels[static_cast<size_t>(k)]));
    };
    if (distance(i) < distance(best)) best = i;
  }
  return best;
}

TEST(Nf4, LevelsAscendAndHoldZero) {
  const std::array<float, 16>& levels = Nf4Levels();
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  EXPECT_EQ(levels.front(), -1.0f);
  EXPECT_EQ(levels[7], 0.0f);
  EXPECT_EQ(levels.back(), 1.0f);
}

TEST(Nf4, TakesTheNearestLevelInBlocksThatCrossRows) {
  for (const auto& [rows, cols] : {std::pair{7, 75}, {1, 1}, {1, 64}, {64, 1}, {3, 200}, {13, 5}}) {
    const Matrix weight = RandomMatrix(rows, cols, static_cast<uint64_t>(rows * cols));
    const QuantizedWeight got = RunOk(weight, nullptr, Nf4());
    EXPECT_EQ(got.status, LayerStatus::kOk);
    const size_t size = weight.values.size();
    ASSERT_EQ(got.codes.size(), size);
    ASSERT_EQ(got.scale.size(), (size + 63) / 64);
    EXPECT_TRUE(got.zero.empty());
    for (size_t i = 0; i < size; ++i) {
      const size_t begin = i / 64 * 64;
      float absmax = 0;
      for (size_t k = begin; k < std::min(size, begin + 64); ++k) {
        absmax = std::max(absmax, std::abs(weight.values[k]));
      }
      ASSERT_EQ(got.scale[i / 64], absmax);
      ASSERT_EQ(got.codes[i], NearestLevel(weight.values[i] * (1 / absmax))) << i;
      ASSERT_EQ(got.dequantized[i], Nf4Levels()[got.codes[i]] * absmax);
    }
  }
}

TEST(Nf4, GivesTiesToTheLowerCode) {
  Matrix weight(1, 16);
  weight.values[0] = 1;
  for (size_t i = 0; i < 15; ++i) {
    weight.values[i + 1] = static_cast<float>(
        (static_cast<double>(Nf4Levels()[i]) + static_cast<double>(Nf4Levels()[i + 1])) / 2);
  }
  const QuantizedWeight got = RunOk(weight, nullptr, Nf4());
  EXPECT_THAT(got.codes, ElementsAre(15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
}

TEST(Nf4, GivesZeroBlocksTheZeroLevel) {
  Matrix weight(2, 64);
  weight.at(1, 5) = -3;
  const QuantizedWeight got = RunOk(weight, nullptr, Nf4());
  EXPECT_THAT(got.scale, ElementsAre(0.0f, 3.0f));
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(got.codes[i], i == 69 ? 0 : 7);
    EXPECT_EQ(got.dequantized[i], i == 69 ? -3.0f : 0.0f);
  }
}

TEST(Nf4, KeepsWeightsWithoutAFiniteReciprocal) {
  Matrix weight(1, 3);
  weight.values = {1e-41f, -1e-41f, 0.0f};
  const QuantizedWeight got = RunOk(weight, nullptr, Nf4());
  EXPECT_EQ(got.dequantized, weight.values);
}

TEST(Nf4, ScalesExactlyWithPowersOfTwo) {
  Matrix weight = RandomMatrix(4, 100, 1);
  const QuantizedWeight before = RunOk(weight, nullptr, Nf4());
  for (float& w : weight.values) w *= 1024;
  EXPECT_EQ(RunOk(weight, nullptr, Nf4()).codes, before.codes);
}

TEST(Nf4, RoundsAbsmaxToItsDtypeFirst) {
  Matrix weight = RandomMatrix(2, 64, 2);
  QuantizerSpec spec = Nf4();
  spec.scale_dtype = ScaleDtype::kBFloat16;
  const QuantizedWeight got = RunOk(weight, nullptr, spec);
  for (size_t i = 0; i < weight.values.size(); ++i) {
    const float absmax = got.scale[i / 64];
    EXPECT_EQ(std::ldexp(absmax, 8), std::round(std::ldexp(absmax, 8)));  // absmax is in [1, 4)
    const float x = std::clamp(weight.values[i] * (1 / absmax), -1.0f, 1.0f);
    EXPECT_EQ(got.codes[i], NearestLevel(x));
    EXPECT_EQ(got.dequantized[i], Nf4Levels()[got.codes[i]] * absmax);
  }
  weight.at(1, 1) = 1e6f;
  spec.scale_dtype = ScaleDtype::kFloat16;
  const QuantizedWeight large = RunOk(weight, nullptr, spec);
  EXPECT_EQ(large.status, LayerStatus::kUnsupported);
  EXPECT_THAT(large.status_detail, HasSubstr("f16"));
  EXPECT_TRUE(large.codes.empty());
}

TEST(Nf4, MeasuresItsLossIfThereAreStatistics) {
  const Matrix weight = RandomMatrix(9, 40, 3);
  const GramStatistics statistics = testing::Gram(testing::CorrelatedInputs(100, 40, 4));
  const QuantizedWeight got = RunOk(weight, &statistics, Nf4());
  const double expected = testing::NaiveTrace(weight.values, got.dequantized, statistics);
  EXPECT_NEAR(*got.loss, expected, 1e-9 * expected);
  EXPECT_EQ(got.rtn_loss, got.loss);
  EXPECT_GT(*got.output_energy, *got.loss);
  EXPECT_FALSE(RunOk(weight, nullptr, Nf4()).loss.has_value());
}

}  // namespace nf4_test
}  // namespace ptqwatch
