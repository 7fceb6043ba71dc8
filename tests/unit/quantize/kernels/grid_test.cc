#include "quantize/kernels/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "unit/quantize/reference.h"

namespace ptqwatch::internal {
namespace grid_test {

using ::testing::Each;
using ::testing::ElementsAre;

QuantizerSpec Spec(int bits, int group_size, bool symmetric) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  return spec;
}

Grid FitOneRow(const std::vector<float>& row, const QuantizerSpec& spec) {
  Grid grid = EmptyGrid(1, static_cast<int64_t>(row.size()), spec);
  EXPECT_TRUE(FitRow(row.data(), 0, &grid));
  return grid;
}

std::vector<int> Codes(const Grid& grid, const std::vector<float>& row) {
  std::vector<uint8_t> codes(row.size());
  RoundRow(grid, 0, row.data(), codes.data(), nullptr);
  return {codes.begin(), codes.end()};
}

TEST(Grid, SymmetricCoversThePositiveHalfWhenNothingIsNegative) {
  const std::vector<float> row = {0.1f, 0.5f, 1.0f, 0.3f};
  const Grid grid = FitOneRow(row, Spec(4, -1, true));
  EXPECT_THAT(grid.scale, ElementsAre(2.0f / 15));
  EXPECT_THAT(grid.zero, ElementsAre(8.0f));
  EXPECT_THAT(Codes(grid, row), ElementsAre(9, 12, 15, 10));
}

TEST(Grid, ZeroGroupHasScaleTwoOverMaxAndDecodesToZero) {
  for (bool symmetric : {true, false}) {
    const std::vector<float> row(5, 0.0f);
    const Grid grid = FitOneRow(row, Spec(3, -1, symmetric));
    EXPECT_THAT(grid.scale, ElementsAre(2.0f / 7));
    // 2 / 7 rounds up in float32, so that 1 / (2 / 7) = 3.4999998 and not the tie 3.5.
    EXPECT_THAT(grid.zero, ElementsAre(symmetric ? 4.0f : 3.0f));
    std::vector<float> decoded(row.size(), -1.0f);
    RoundRow(grid, 0, row.data(), nullptr, decoded.data());
    EXPECT_THAT(decoded, Each(0.0f));
  }
}

TEST(Grid, AsymmetricAlwaysHoldsZero) {
  const Grid positive = FitOneRow({2.0f, 3.0f}, Spec(2, -1, false));
  EXPECT_THAT(positive.scale, ElementsAre(1.0f));
  EXPECT_THAT(positive.zero, ElementsAre(0.0f));
  EXPECT_FALSE(std::signbit(positive.zero[0]));
  const Grid negative = FitOneRow({-2.0f, -3.0f}, Spec(2, -1, false));
  EXPECT_THAT(negative.zero, ElementsAre(3.0f));
}

TEST(Grid, RoundsHalfToEven) {
  Grid grid = EmptyGrid(1, 6, Spec(8, -1, true));
  grid.scale = {1.0f};
  grid.zero = {128.0f};
  EXPECT_THAT(Codes(grid, {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f}),
              ElementsAre(128, 130, 130, 128, 126, 126));
}

TEST(Grid, ClampsWhatLiesOutside) {
  Grid grid = EmptyGrid(1, 4, Spec(4, -1, true));
  grid.scale = {0.25f};
  grid.zero = {8.0f};
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Codes(grid, {1e30f, -1e30f, inf, -inf}), ElementsAre(15, 0, 15, 0));
}

TEST(Grid, NarrowRangeHasAsManyStepsOnEitherSide) {
  for (int bits = 2; bits <= 8; ++bits) {
    QuantizerSpec spec = Spec(bits, -1, true);
    spec.narrow_range = true;
    const int steps = (1 << (bits - 1)) - 1;
    // The ends lie on the grid, and what lies outside gets their codes.
    const std::vector<float> row = {0.75f * static_cast<float>(steps), 0,
                                    -0.75f * static_cast<float>(steps), 0.75f};
    const Grid grid = FitOneRow(row, spec);
    EXPECT_THAT(grid.scale, ElementsAre(0.75f));
    const int zero = steps + 1;
    EXPECT_THAT(grid.zero, ElementsAre(static_cast<float>(zero)));
    EXPECT_THAT(Codes(grid, row), ElementsAre(zero + steps, zero, 1, zero + 1));
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_THAT(Codes(grid, {1e30f, -1e30f, inf, -inf}),
                ElementsAre(zero + steps, 1, zero + steps, 1));
    EXPECT_THAT(FitOneRow({0, 0}, spec).scale, ElementsAre(1.0f / static_cast<float>(steps)));
  }
}

TEST(Grid, LastGroupMayBeShort) {
  const std::vector<float> row = {1, 2, 4, 8, 16};
  const Grid grid = FitOneRow(row, Spec(2, 2, true));
  EXPECT_EQ(grid.groups, 3);
  EXPECT_THAT(grid.scale, ElementsAre(4.0f / 3, 16.0f / 3, 32.0f / 3));
}

TEST(Grid, GroupLongerThanTheRowIsTheWholeRow) {
  const std::vector<float> row = {1, -2, 4};
  const Grid whole = FitOneRow(row, Spec(4, -1, true));
  for (int group : {3, 4, 1000000}) {
    const Grid grid = FitOneRow(row, Spec(4, group, true));
    EXPECT_EQ(grid.groups, 1);
    EXPECT_EQ(grid.scale, whole.scale);
  }
}

TEST(Grid, GivesTheSmallestWeightsTheSmallestScale) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> row = {tiny, -tiny, 0};
  const Grid grid = FitOneRow(row, Spec(8, -1, true));
  EXPECT_THAT(grid.scale, ElementsAre(tiny));
  EXPECT_THAT(Codes(grid, row), ElementsAre(129, 127, 128));
}

TEST(Grid, RoundsTheScaleBeforeZeroAndCodes) {
  // 2.8 / 3 is rounded down in f16 and up in bf16, and 1.4 is a step and a half of it.
  QuantizerSpec spec = Spec(2, -1, false);
  const std::vector<float> row = {-1.4f, 1.4f};
  spec.scale_dtype = ScaleDtype::kFloat16;
  const Grid half = FitOneRow(row, spec);
  EXPECT_THAT(half.scale, ElementsAre(1911 * 0x1p-11f));
  EXPECT_THAT(half.zero, ElementsAre(2.0f));
  EXPECT_THAT(Codes(half, row), ElementsAre(0, 3));
  spec.scale_dtype = ScaleDtype::kBFloat16;
  const Grid brain = FitOneRow(row, spec);
  EXPECT_THAT(brain.scale, ElementsAre(239 * 0x1p-8f));
  EXPECT_THAT(brain.zero, ElementsAre(1.0f));
  EXPECT_THAT(Codes(brain, row), ElementsAre(0, 2));
}

TEST(Grid, HasNoScaleBelowTheLeast) {
  QuantizerSpec spec = Spec(4, 2, true);
  spec.narrow_range = true;
  spec.min_scale = 0.1;
  const std::vector<float> row = {0.3f, -0.14f, 1.4f, 0.1f, 0, 0};
  const Grid grid = FitOneRow(row, spec);
  EXPECT_THAT(grid.scale, ElementsAre(0.1f, 1.4f / 7, 1.0f / 7));
  EXPECT_THAT(Codes(grid, row), ElementsAre(11, 7, 15, 8, 8, 8));
  spec.symmetric = false;
  spec.narrow_range = false;
  const Grid shifted = FitOneRow({-0.4f, 0.1f}, spec);
  EXPECT_THAT(shifted.scale, ElementsAre(0.1f));
  EXPECT_THAT(shifted.zero, ElementsAre(4.0f));
  // The rounding comes afterwards.
  spec.scale_dtype = ScaleDtype::kFloat16;
  EXPECT_THAT(FitOneRow({-0.4f, 0.1f}, spec).scale, ElementsAre(1638 * 0x1p-14f));
}

TEST(Grid, CodesAreOfTheExactScaleIfItIsRoundedLast) {
  QuantizerSpec spec = Spec(4, 3, true);
  spec.method = QuantizationMethod::kRtn;
  spec.narrow_range = true;
  spec.scale_dtype = ScaleDtype::kBFloat16;
  // 1.06 / 7 is 155.06 / 1024, which is rounded to 155 / 1024; 0.2271 is less than a step and a
  // half of the one, and more of the other.
  const std::vector<float> row = {1.06f, 0.2271f, -0.1f, 1.06f, 0.2271f, 0};
  const Grid first = FitOneRow(row, spec);
  spec.round_scale_last = true;
  Grid grid = FitOneRow(row, spec);
  const float exact = 1.06f / 7;
  EXPECT_THAT(grid.scale, ElementsAre(exact, exact));
  std::vector<uint8_t> codes(row.size());
  std::vector<float> decoded(row.size());
  EXPECT_TRUE(
      RoundRowBeforeScale(spec.scale_dtype, 0, row.data(), &grid, codes.data(), decoded.data()));
  EXPECT_EQ(grid.scale, first.scale);
  EXPECT_THAT(codes, ElementsAre(15, 9, 7, 15, 9, 8));
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(decoded[i], grid.scale[i / 3] * static_cast<float>(codes[i] - 8));
  }
  EXPECT_THAT(Codes(first, row), ElementsAre(15, 10, 7, 15, 10, 8));
}

TEST(Grid, ClipsToTheRangeIfTheScaleIsRoundedLast) {
  QuantizerSpec spec = Spec(8, -1, true);
  spec.method = QuantizationMethod::kRtn;
  spec.clip = ClipSearch::kPercentile;
  spec.clip_value = 50;  // 0.5 of the row below
  spec.min_scale = 0.1;
  const std::vector<float> row = {0.9f, -0.5f, 0.1f};
  EXPECT_THAT(Codes(FitOneRow(row, spec), row), ElementsAre(137, 123, 129));
  spec.round_scale_last = true;
  Grid grid = FitOneRow(row, spec);
  std::vector<uint8_t> codes(3);
  std::vector<float> decoded(3);
  EXPECT_TRUE(
      RoundRowBeforeScale(spec.scale_dtype, 0, row.data(), &grid, codes.data(), decoded.data()));
  EXPECT_THAT(codes, ElementsAre(133, 123, 129));
  // A scale that its type cannot hold shows after the rounding.
  spec.scale_dtype = ScaleDtype::kFloat16;
  spec.min_scale = 1e6;
  grid = FitOneRow(row, spec);
  EXPECT_FALSE(
      RoundRowBeforeScale(spec.scale_dtype, 0, row.data(), &grid, codes.data(), decoded.data()));
}

TEST(Grid, KeepsZeroWithinTheCodesWhenTheScaleIsFarOff) {
  QuantizerSpec spec = Spec(8, -1, false);
  spec.scale_dtype = ScaleDtype::kFloat16;
  // 1.4 * 2^-24 rounds to 2^-24: 357 steps would be needed.
  const std::vector<float> row = {-1.4f * 255 * 0x1p-24f, 0};
  const Grid grid = FitOneRow(row, spec);
  EXPECT_THAT(grid.scale, ElementsAre(0x1p-24f));
  EXPECT_THAT(grid.zero, ElementsAre(255.0f));
  EXPECT_THAT(Codes(grid, row), ElementsAre(0, 255));
}

TEST(Grid, UnderflowingScalesBecomeTheSmallestOfTheirDtype) {
  QuantizerSpec spec = Spec(4, -1, true);
  spec.scale_dtype = ScaleDtype::kFloat16;
  EXPECT_THAT(FitOneRow({1e-12f}, spec).scale, ElementsAre(0x1p-24f));
  spec.scale_dtype = ScaleDtype::kBFloat16;
  EXPECT_THAT(FitOneRow({1e-44f}, spec).scale, ElementsAre(0x1p-133f));
}

TEST(Grid, ReportsAScaleThatOverflows) {
  const std::vector<float> row = {3e38f, -3e38f};
  Grid grid = EmptyGrid(1, 2, Spec(2, -1, true));
  EXPECT_FALSE(FitRow(row.data(), 0, &grid));
  // A scale of 65520 is the first that f16 cannot hold.
  QuantizerSpec spec = Spec(2, -1, true);
  spec.scale_dtype = ScaleDtype::kFloat16;
  grid = EmptyGrid(1, 1, spec);
  const float largest = std::nextafter(98280.0f, 0.0f);
  EXPECT_TRUE(FitRow(&largest, 0, &grid));
  EXPECT_THAT(grid.scale, ElementsAre(65504.0f));
  const float beyond = 98280.0f;
  EXPECT_FALSE(FitRow(&beyond, 0, &grid));
}

TEST(Grid, RoundsInPlace) {
  const testing::Matrix row = testing::RandomMatrix(1, 37, 5);
  const Grid grid = FitOneRow(row.values, Spec(3, 10, false));
  std::vector<float> expected(37);
  RoundRow(grid, 0, row.values.data(), nullptr, expected.data());
  std::vector<float> in_place = row.values;
  RoundRow(grid, 0, in_place.data(), nullptr, in_place.data());
  EXPECT_EQ(in_place, expected);
}

// Vector bodies and scalar tails, on every instruction set, must not differ in a bit.
TEST(Grid, GivesTheSameBitsOnEveryTargetAndLength) {
  const testing::Matrix row = testing::RandomMatrix(1, 103, 3);
  for (const auto& [symmetric, narrow] : {std::pair{true, false}, {false, false}, {true, true}}) {
    for (int bits = 2; bits <= 8; ++bits) {
      QuantizerSpec spec = Spec(bits, 20, symmetric);
      spec.narrow_range = narrow;
      const testing::ReferenceResult expected =
          testing::ReferenceGptq(row, testing::NaiveGram(testing::RandomMatrix(200, 103, 4)), spec);
      for (int64_t target : testing::UsableTargets()) {
        const testing::OnlyTarget only(target);
        const Grid grid = FitOneRow(row.values, spec);
        EXPECT_EQ(grid.scale, expected.scale);
        EXPECT_EQ(grid.zero, expected.zero);
        const float bottom = narrow ? 1.0f : 0.0f;
        const float top = grid.max_code();
        std::vector<uint8_t> codes(row.values.size());
        std::vector<float> decoded(row.values.size());
        std::vector<float> again(row.values.size());
        RoundRow(grid, 0, row.values.data(), codes.data(), decoded.data());
        DecodeRow(grid, 0, codes.data(), again.data());
        EXPECT_EQ(decoded, again);
        for (size_t i = 0; i < codes.size(); ++i) {
          const size_t g = i / 20;
          const float steps = std::nearbyint(row.values[i] / grid.scale[g]) + grid.zero[g];
          ASSERT_EQ(static_cast<float>(codes[i]), std::fmin(std::fmax(steps, bottom), top)) << i;
        }
      }
    }
  }
}

}  // namespace grid_test
}  // namespace ptqwatch::internal
