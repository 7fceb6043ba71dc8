#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cuda/kernels/all_kernels.h"
#include "quantize/kernels/grid.h"
#include "quantize/kernels/scale_dtype.h"
#include "support/host_device.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::internal {
namespace kernels_test {

using testing::HostDevice;
using testing::Matrix;
using testing::RandomMatrix;

HostDevice& Device() {
  static HostDevice* device = new HostDevice(1 << 10);
  return *device;
}

TEST(Scalars, RoundScalesAsTheEngineDoes) {
  std::mt19937 random(1);
  std::vector<float> values = {0,
                               1,
                               65504,
                               65519.996f,
                               65520,
                               3.39e38f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               1e-45f,
                               6e-8f,
                               2.9e-8f,
                               std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::abs(FloatFromBits(static_cast<uint32_t>(random()))));
  for (const float value : values) {
    if (std::isnan(value)) continue;
    for (const ScaleDtype dtype :
         {ScaleDtype::kFloat32, ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
      EXPECT_EQ(RoundToDtype(value, dtype), RoundScale(value, dtype)) << value;
    }
  }
}

TEST(Scalars, ConvertShortFloats) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float wide = FromBFloat16(half);
    if (std::isfinite(wide)) {
      EXPECT_EQ(ToBFloat16(wide), half);
    }
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const float fraction = static_cast<float>(bits & 1023) / 1024;
    const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
      EXPECT_FALSE(IsFiniteBits(FromFloat16(half)));
    } else {
      const float expected =
          exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
      EXPECT_EQ(FloatBits(FromFloat16(half)), FloatBits(sign * expected));
    }
  }
}

TEST(Scalars, CodesOfNonFiniteNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bottom : {0.0f, 1.0f}) {
    EXPECT_EQ(CodeOf(std::nanf(""), 1, 8, bottom, 15), bottom);
    EXPECT_EQ(CodeOf(infinity, 1, 8, bottom, 15), 15);
    EXPECT_EQ(CodeOf(-infinity, 1, 8, bottom, 15), bottom);
    EXPECT_EQ(CodeOf(1, infinity, 8, bottom, 15), 8);
  }
  // Half to even.
  EXPECT_EQ(CodeOf(0.5f, 1, 8, 0, 15), 8);
  EXPECT_EQ(CodeOf(1.5f, 1, 8, 0, 15), 10);
}

TEST(GridKernels, FitAndRoundAsTheEngineDoes) {
  for (const int64_t cols : {1, 31, 32, 100, 129}) {
    for (int bits = 2; bits <= 8; ++bits) {
      for (const auto& [symmetric, narrow] :
           {std::pair{false, false}, {true, false}, {true, true}}) {
        Matrix w = RandomMatrix(5, cols, static_cast<uint64_t>(cols));
        for (int64_t c = 0; c < cols; ++c) {
          w.at(1, c) = 0;
          w.at(2, c) = std::abs(w.at(2, c)) + 3;
          w.at(3, c) *= 1e-41f;
        }
        QuantizerSpec spec;
        spec.bits = bits;
        spec.symmetric = symmetric;
        spec.narrow_range = narrow;
        spec.min_scale = bits == 5 ? 0.2 : 0;
        spec.group_size = 32;
        spec.scale_dtype = symmetric ? ScaleDtype::kFloat16 : ScaleDtype::kFloat32;
        Grid grid = EmptyGrid(5, cols, spec);
        std::vector<uint8_t> codes(w.values.size());
        std::vector<float> decoded(w.values.size());
        for (int64_t r = 0; r < 5; ++r) {
          FitRow(w.values.data() + r * cols, r, &grid);
          RoundRow(grid, r, w.values.data() + r * cols, codes.data() + r * cols,
                   decoded.data() + r * cols);
        }
        std::vector<float> scale(grid.scale.size());
        std::vector<float> zero(grid.zero.size());
        std::vector<uint8_t> got(codes.size());
        std::vector<float> values(codes.size());
        FitGroups fit{.layers = 1, .source = {.rows = 5, .cols = cols}, .most_groups = grid.groups};
        fit.grids.at[0] = {.group_size = grid.group_size,
                           .groups = grid.groups,
                           .bits = bits,
                           .symmetric = symmetric,
                           .lowest = narrow ? 1 : 0,
                           .scale_dtype = spec.scale_dtype,
                           .least_scale = LeastScale(spec)};
        fit.source.weight.at[0] = w.values.data();
        fit.scale.at[0] = scale.data();
        fit.zero.at[0] = zero.data();
        ASSERT_TRUE(Device().Run(fit).ok());
        EXPECT_EQ(scale, grid.scale);
        EXPECT_EQ(zero, grid.zero);
        RoundGroups round{.layers = 1, .source = fit.source, .grids = fit.grids};
        round.scale.at[0] = scale.data();
        round.zero.at[0] = zero.data();
        round.codes.at[0] = got.data();
        round.decoded.at[0] = values.data();
        ASSERT_TRUE(Device().Run(round).ok());
        EXPECT_EQ(got, codes);
        EXPECT_EQ(values, decoded);
      }
    }
  }
}

TEST(FloatKernels, FindTheLargestMagnitude) {
  for (const int64_t rows : {1, 3, 40}) {
    Matrix w = RandomMatrix(rows, 70, 9);
    w.at(rows - 1, 69) = -50;
    std::vector<double> partials(7);
    double number = 0;
    FindLargest find{.layers = 1,
                     .source = {.rows = rows, .cols = 70},
                     .parts = std::min<int64_t>(rows, 7),
                     .partials = {partials.data(), 0}};
    find.source.weight.at[0] = w.values.data();
    ASSERT_TRUE(Device().Run(find).ok());
    Collapse collapse{
        .layers = 1, .fold = Fold::kLargest, .count = find.parts, .values = {partials.data(), 0}};
    collapse.numbers.at[0] = &number;
    ASSERT_TRUE(Device().Run(collapse).ok());
    EXPECT_EQ(number, 50);
  }
}

TEST(GridKernels, ClippedGridsOfSlicesAreThoseOfTheWhole) {
  Matrix weight = RandomMatrix(21, 70, 4);
  for (int64_t r = 0; r < weight.rows; r += 2) weight.at(r, r) *= 6;
  FitClipped fit{.layers = 2, .source = {.rows = 21, .cols = 70}, .most_groups = 3};
  fit.grids.at[0] = {.group_size = 32, .groups = 3};
  fit.grids.at[1] = {.group_size = 70, .groups = 1};
  struct Fitted {
    std::vector<float> scale = std::vector<float>(2 * 63);
    std::vector<float> zero = std::vector<float>(2 * 63);
    std::vector<double> clipped = std::vector<double>(2 * 16);
  };
  const auto run = [&](int64_t slice) {
    Fitted fitted;
    for (int i = 0; i < 2; ++i) {
      fit.source.weight.at[i] = weight.values.data();
      fit.scale.at[i] = fitted.scale.data() + 63 * i;
      fit.zero.at[i] = fitted.zero.data() + 63 * i;
    }
    fit.clipped = {.first = fitted.clipped.data(), .stride = 16};
    for (fit.first_row = 0; fit.first_row < 21; fit.first_row += fit.row_count) {
      fit.row_count = std::min(slice, 21 - fit.first_row);
      EXPECT_TRUE(Device().Run(fit).ok());
    }
    return fitted;
  };
  const Fitted whole = run(21);
  for (const int64_t slice : {4, 8, 20}) {
    const Fitted parts = run(slice);
    EXPECT_EQ(parts.scale, whole.scale);
    EXPECT_EQ(parts.zero, whole.zero);
    for (int i = 0; i < 2; ++i) {
      const auto count = [&](const Fitted& fitted) {
        return std::accumulate(fitted.clipped.begin() + 16 * i,
                               fitted.clipped.begin() + 16 * i + 16, 0.0);
      };
      EXPECT_EQ(count(parts), count(whole));
      EXPECT_GT(count(whole), 0);
    }
  }
}

TEST(FactorKernels, RanksArePermutationsWhateverTheNumbers) {
  const double nan = std::nan("");
  for (const std::vector<double>& diagonal :
       {std::vector<double>{3, 1, 2, 2, 5}, {nan, nan, nan}, {1, nan, 0, nan, HUGE_VAL, 1}, {0}}) {
    const int64_t cols = static_cast<int64_t>(diagonal.size());
    std::vector<int32_t> order(diagonal.size(), -1);
    std::vector<int32_t> position(diagonal.size(), -1);
    RankColumns rank{.layers = 1,
                     .cols = cols,
                     .by_diagonal = true,
                     .diagonal = {diagonal.data(), 0},
                     .position = {position.data(), 0}};
    rank.order.at[0] = order.data();
    ASSERT_TRUE(Device().Run(rank).ok());
    EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), diagonal.size());
    for (size_t c = 0; c < diagonal.size(); ++c) {
      EXPECT_EQ(order[static_cast<size_t>(position[c])], static_cast<int32_t>(c));
    }
  }
}

TEST(FactorKernels, OrderIsStable) {
  const std::vector<double> diagonal = {3, 1, 2, 2, 5, 3};
  std::vector<int32_t> order(6);
  std::vector<int32_t> position(6);
  RankColumns rank{.layers = 1,
                   .cols = 6,
                   .by_diagonal = true,
                   .diagonal = {diagonal.data(), 0},
                   .position = {position.data(), 0}};
  rank.order.at[0] = order.data();
  ASSERT_TRUE(Device().Run(rank).ok());
  EXPECT_EQ(order, (std::vector<int32_t>{4, 0, 5, 2, 3, 1}));
  rank.by_diagonal = false;
  ASSERT_TRUE(Device().Run(rank).ok());
  EXPECT_EQ(order, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(ReduceKernels, FindTheFirstBadNumber) {
  for (const int64_t at : {int64_t{-1}, int64_t{0}, int64_t{300}, int64_t{9999}}) {
    std::vector<float> values(10000, 1.0f);
    if (at >= 0) values[static_cast<size_t>(at)] = std::numeric_limits<float>::infinity();
    if (at >= 0) values.back() = std::nanf("");
    std::vector<double> partials(7);
    double number = 0;
    FindNonFinite<float> find{
        .layers = 1, .sizes = {10000}, .parts = 7, .partials = {partials.data(), 0}};
    find.values.at[0] = values.data();
    ASSERT_TRUE(Device().Run(find).ok());
    Collapse collapse{
        .layers = 1, .fold = Fold::kSmallest, .count = 7, .values = {partials.data(), 0}};
    collapse.numbers.at[0] = &number;
    ASSERT_TRUE(Device().Run(collapse).ok());
    EXPECT_EQ(number, static_cast<double>(at));
  }
}

}  // namespace kernels_test
}  // namespace ptqwatch::internal
