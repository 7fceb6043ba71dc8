#include "quantize/kernels/number_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quantize/kernels/grid.h"
#include "quantize/rotation.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace number_format_test {

using ::ptqwatch::testing::CorrelatedInputs;
using ::ptqwatch::testing::Gram;
using ::ptqwatch::testing::kFloatFormats;
using ::ptqwatch::testing::Matrix;
using ::ptqwatch::testing::NaiveTrace;
using ::ptqwatch::testing::OnlyTarget;
using ::ptqwatch::testing::RandomMatrix;
using ::ptqwatch::testing::RunOk;
using ::ptqwatch::testing::SpecOf;
using ::ptqwatch::testing::UsableTargets;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The code of the nearest finite number by trying them all; on a tie the even code.
int NearestCode(float x, const NumberFormat& format) {
  const int half = 1 << (format.bits - 1);
  int best = 0;
  double smallest = std::numeric_limits<double>::infinity();
  for (int code = 0; code < half; ++code) {
    const double level = format.Level(static_cast<uint8_t>(code));
    if (level > static_cast<double>(format.largest)) continue;
    const double distance = std::abs(std::abs(static_cast<double>(x)) - level);
    if (distance < smallest || (distance == smallest && code % 2 == 0)) {
      smallest = distance;
      best = code;
    }
  }
  return best + (std::signbit(x) ? half : 0);
}

TEST(NumberFormat, HasTheLevelsOfE2m1) {
  const NumberFormat& format = NumbersOf(QuantizationFormat::kMxfp4);
  std::vector<float> levels;
  for (uint8_t code = 0; code < 16; ++code) levels.push_back(format.Level(code));
  EXPECT_THAT(levels,
              ElementsAre(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6));
  EXPECT_TRUE(std::signbit(levels[8]));
}

TEST(NumberFormat, HasTheEdgesOfTheEightBitFormats) {
  const NumberFormat& e4m3 = NumbersOf(QuantizationFormat::kFp8);
  EXPECT_EQ(e4m3.Level(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(e4m3.Level(0x08), std::ldexp(1.0f, -6));
  EXPECT_EQ(e4m3.Level(0x38), 1.0f);
  EXPECT_EQ(e4m3.Level(0x7E), 448.0f);
  EXPECT_EQ(e4m3.Level(0xFE), -448.0f);
  const NumberFormat& e5m2 = NumbersOf(QuantizationFormat::kFp8E5m2);
  EXPECT_EQ(e5m2.Level(0x01), std::ldexp(1.0f, -16));
  EXPECT_EQ(e5m2.Level(0x3C), 1.0f);
  EXPECT_EQ(e5m2.Level(0x7B), 57344.0f);
}

TEST(NumberFormat, RoundsTiesToEvenCodesAndSaturates) {
  Grid grid = EmptyGrid(1, 14, SpecOf(QuantizationFormat::kMxfp4));
  grid.scale = {1.0f};
  const std::vector<float> row = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f,      3.5f,       5.0f,
                                  7.0f,  -0.2f, -0.0f, 5.1f,  kInfinity, -kInfinity, -2.5f};
  std::vector<uint8_t> codes(row.size());
  std::vector<float> decoded(row.size());
  RoundRow(grid, 0, row.data(), codes.data(), decoded.data());
  EXPECT_THAT(codes, ElementsAre(0, 2, 2, 4, 4, 6, 6, 7, 8, 8, 7, 7, 15, 12));
  EXPECT_THAT(decoded, ElementsAre(0, 1, 1, 2, 2, 4, 4, 6, 0, 0, 6, 6, -6, -2));
}

TEST(NumberFormat, RoundsToTheNearestCodeOnEveryTarget) {
  for (int64_t target : UsableTargets()) {
    const OnlyTarget only(target);
    for (QuantizationFormat id : kFloatFormats) {
      const NumberFormat& format = NumbersOf(id);
      Matrix row(1, 517);
      Matrix random = RandomMatrix(1, 517, 7);
      for (int64_t c = 0; c < row.cols; ++c) {
        // From far below the smallest number to beyond the largest.
        row.at(0, c) = random.at(0, c) * std::ldexp(format.largest, static_cast<int>(c % 40) - 38);
      }
      Grid grid = EmptyGrid(1, row.cols, SpecOf(id));
      grid.scale.assign(grid.scale.size(), 1.0f);
      std::vector<uint8_t> codes(row.values.size());
      std::vector<float> decoded(row.values.size());
      std::vector<float> again(row.values.size());
      RoundRow(grid, 0, row.values.data(), codes.data(), decoded.data());
      DecodeRow(grid, 0, codes.data(), again.data());
      for (size_t c = 0; c < codes.size(); ++c) {
        ASSERT_EQ(codes[c], NearestCode(row.values[c], format))
            << format.name << " " << row.values[c];
        ASSERT_EQ(decoded[c], format.Level(codes[c])) << format.name << " " << row.values[c];
        ASSERT_EQ(NearestNumber(row.values[c], format).value, decoded[c]);
      }
      EXPECT_EQ(again, decoded);
    }
  }
}

// Kernels for GPUs round single numbers, the engine vectors.
TEST(NumberFormat, OneNumberIsRoundedAsManyAre) {
  Matrix row(1, 3 << 16);
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    // Every sign and exponent, next to ties and on them.
    row.values[3 * i] = FloatFromBits(i << 16);
    row.values[3 * i + 1] = FloatFromBits((i << 16) + 1);
    row.values[3 * i + 2] = FloatFromBits((i << 16) - 1);
  }
  for (QuantizationFormat id : kFloatFormats) {
    const NumberFormat& format = NumbersOf(id);
    Grid grid = EmptyGrid(1, row.cols, SpecOf(id));
    grid.scale.assign(grid.scale.size(), 1.0f);
    std::vector<uint8_t> codes(row.values.size());
    std::vector<float> decoded(row.values.size());
    RoundRow(grid, 0, row.values.data(), codes.data(), decoded.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      const FormatNumber number = NearestNumber(row.values[i], format);
      if (std::isnan(row.values[i])) {
        ASSERT_EQ(number.value, 0);
        ASSERT_EQ(number.code & ((1 << (format.bits - 1)) - 1), 0);
        continue;
      }
      ASSERT_EQ(number.code, codes[i]) << format.name << " " << row.values[i];
      ASSERT_EQ(FloatBits(number.value), FloatBits(decoded[i])) << format.name;
    }
  }
}

TEST(NumberFormat, ScalesMxBlocksByThreeRules) {
  struct Case {
    float largest;
    int floor, even, round_up;
  };
  // Exponents for E2M1. 6 is the largest number; 7 is where "even" rounds up.
  const Case cases[] = {
      {4.0f, 0, 0, 0},
      {6.0f, 0, 0, 0},
      {6.01f, 0, 0, 1},
      {std::nextafter(7.0f, 0.0f), 0, 0, 1},
      {7.0f, 0, 1, 1},
      {7.99f, 0, 1, 1},
      {8.0f, 1, 1, 1},
      {3.5f, -1, 0, 0},
      {0.0f, -127, -127, -127},
      {1e-40f, -127, -127, -127},
      {std::numeric_limits<float>::max(), 125, 126, 126},
  };
  const NumberFormat& format = NumbersOf(QuantizationFormat::kMxfp4);
  for (const Case& c : cases) {
    EXPECT_EQ(PowerOfTwoScale(c.largest, format, ScaleRule::kFloor), std::ldexp(1.0f, c.floor))
        << c.largest;
    EXPECT_EQ(PowerOfTwoScale(c.largest, format, ScaleRule::kEven), std::ldexp(1.0f, c.even))
        << c.largest;
    EXPECT_EQ(PowerOfTwoScale(c.largest, format, ScaleRule::kRoundUp), std::ldexp(1.0f, c.round_up))
        << c.largest;
  }
  // E4M3 has three mantissa bits: rounds up from 1.9375.
  const NumberFormat& eight = NumbersOf(QuantizationFormat::kMxfp8);
  EXPECT_EQ(PowerOfTwoScale(1.93f, eight, ScaleRule::kEven), std::ldexp(1.0f, -8));
  EXPECT_EQ(PowerOfTwoScale(1.9375f, eight, ScaleRule::kEven), std::ldexp(1.0f, -7));
}

TEST(NumberFormat, Nvfp4ScalesBlocksWithinTheTensor) {
  Matrix w(2, 32);
  w.at(0, 3) = 12.0f;
  w.at(0, 20) = -0.5f;
  w.at(1, 31) = 1e-9f;
  const QuantizedWeight result = RunOk(w, nullptr, SpecOf(QuantizationFormat::kNvfp4));
  EXPECT_EQ(result.tensor_scale, 448.0f * 6 / 12);
  // 448, 0.5 / 6 * 224 = 18.67 rounded to 18, and the smallest normal number for tiny and zero
  // blocks.
  const float factor = 12.0f / (448 * 6);
  EXPECT_THAT(result.scale,
              ElementsAre(448 * factor, 18 * factor, 0x1p-6f * factor, 0x1p-6f * factor));
  EXPECT_EQ(result.dequantized[3], 12.0f);
  EXPECT_EQ(result.codes[20], 15);
  EXPECT_EQ(result.dequantized[63], 0.0f);
}

// Each step in float32, as torchao computes it: two divisions, rounding, and a product.
TEST(NumberFormat, Nvfp4ScalesAreProductsWithTheTensorFactor) {
  const Matrix w = RandomMatrix(16, 160, 12);
  float tensor = 0;
  for (const float value : w.values) tensor = std::max(tensor, std::abs(value));
  const float factor = tensor / 2688;
  for (const int64_t target : UsableTargets()) {
    const OnlyTarget only(target);
    const QuantizedWeight result = RunOk(w, nullptr, SpecOf(QuantizationFormat::kNvfp4));
    for (size_t g = 0; g < result.scale.size(); ++g) {
      float largest = 0;
      for (size_t i = 16 * g; i < 16 * g + 16; ++i) {
        largest = std::max(largest, std::abs(w.values[i]));
      }
      const float exact = largest / 6 / factor;
      const int code = NearestCode(exact, E4m3());
      ASSERT_EQ(result.scale[g], E4m3().Level(static_cast<uint8_t>(code)) * factor) << g;
    }
  }
  // The inverse of a tensor scale that overflows.
  Matrix tiny(1, 16);
  tiny.at(0, 2) = 1e-37f;
  const QuantizedWeight vanishing = RunOk(tiny, nullptr, SpecOf(QuantizationFormat::kNvfp4));
  EXPECT_EQ(vanishing.tensor_scale, 1.0f);
  EXPECT_THAT(vanishing.scale, ElementsAre(0x1p-6f));
}

TEST(NumberFormat, ZeroWeightsStayZero) {
  for (QuantizationFormat format : kFloatFormats) {
    const QuantizedWeight result = RunOk(Matrix(3, 40), nullptr, SpecOf(format));
    EXPECT_EQ(result.status, LayerStatus::kOk);
    EXPECT_THAT(result.dequantized, Each(0.0f));
    for (float scale : result.scale) EXPECT_GT(scale, 0.0f);
    if (NumbersOf(format).scale == GroupScale::kE8m0) {
      EXPECT_THAT(result.scale, Each(0x1p-127f));
    }
  }
}

TEST(NumberFormat, NamesAWeightThatIsNotFinite) {
  for (size_t format = 0; format < NumberFormats().size(); ++format) {
    for (const float value : {kInfinity, -kInfinity, std::nanf("")}) {
      for (const int64_t column : {int64_t{0}, int64_t{3}, int64_t{69}}) {
        Matrix w = RandomMatrix(3, 70, 2);
        w.at(1, column) = value;
        QuantizerSpec spec = SpecOf(static_cast<QuantizationFormat>(format));
        for (const bool symmetric : {true, false}) {
          spec.symmetric = symmetric;
          const QuantizedWeight result = RunOk(w, nullptr, spec);
          EXPECT_EQ(result.status, LayerStatus::kNonFinite) << ToString(spec.format);
          EXPECT_THAT(result.status_detail, HasSubstr("weight[1, "));
          EXPECT_TRUE(result.codes.empty());
        }
        if (NumberFormats()[format].group_size > 0) continue;
        spec.group_rows = 2;
        EXPECT_EQ(RunOk(w, nullptr, spec).status, LayerStatus::kNonFinite);
      }
    }
  }
}

// The largest numbers of a grid may be more than float32 holds.
TEST(NumberFormat, RefusesAWeightThatCannotBeDecoded) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (size_t format = 1; format < NumberFormats().size(); ++format) {
    const QuantizerSpec spec = SpecOf(static_cast<QuantizationFormat>(format));
    for (const float largest : {0.49f * kMost, 0.74f * kMost, 0.88f * kMost, kMost}) {
      Matrix w = RandomMatrix(2, 70, 2);
      w.at(1, 3) = -largest;
      const QuantizedWeight result = RunOk(w, nullptr, spec);
      if (result.status == LayerStatus::kOk) {
        for (const float q : result.dequantized) EXPECT_TRUE(std::isfinite(q)) << largest;
      } else {
        EXPECT_EQ(result.status, LayerStatus::kUnsupported);
        EXPECT_GT(largest, 0.5f * kMost);
      }
    }
  }
}

TEST(NumberFormat, BlocksOfRowsShareAScale) {
  Matrix w = RandomMatrix(5, 10, 3);
  QuantizerSpec spec = SpecOf(QuantizationFormat::kFp8);
  spec.group_size = 4;
  spec.group_rows = 2;
  const QuantizedWeight result = RunOk(w, nullptr, spec);
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t g = 0; g < 3; ++g) {
      float largest = 0;
      for (int64_t i = r - r % 2; i < std::min<int64_t>(5, r - r % 2 + 2); ++i) {
        for (int64_t c = 4 * g; c < std::min<int64_t>(10, 4 * g + 4); ++c) {
          largest = std::max(largest, std::abs(w.at(i, c)));
        }
      }
      EXPECT_EQ(result.scale[static_cast<size_t>(3 * r + g)], largest / 448);
    }
  }
  spec.group_rows = -1;
  spec.group_size = -1;
  const QuantizedWeight whole = RunOk(w, nullptr, spec);
  EXPECT_THAT(whole.scale, Each(whole.scale[0]));
}

TEST(NumberFormat, GptqLosesLessThanRoundingInEveryFormat) {
  const Matrix w = RandomMatrix(24, 96, 5);
  const GramStatistics statistics = Gram(CorrelatedInputs(400, 96, 6));
  for (QuantizationFormat format : kFloatFormats) {
    for (ClipSearch clip : {ClipSearch::kNone, ClipSearch::kMse}) {
      QuantizerSpec spec = SpecOf(format, QuantizationMethod::kGptq);
      spec.clip = clip;
      const QuantizedWeight result = RunOk(w, &statistics, spec);
      EXPECT_EQ(result.status, LayerStatus::kOk);
      EXPECT_LT(*result.loss, *result.rtn_loss) << ToString(format);
      EXPECT_NEAR(*result.loss, NaiveTrace(w.values, result.dequantized, statistics),
                  1e-4 * *result.loss);
      const NumberFormat& numbers = NumbersOf(format);
      const int64_t group = GroupSizeOf(spec, 96);
      for (size_t i = 0; i < result.codes.size(); ++i) {
        const size_t at =
            i / 96 * static_cast<size_t>(96 / group) + i % 96 / static_cast<size_t>(group);
        ASSERT_EQ(result.dequantized[i], result.scale[at] * numbers.Level(result.codes[i]));
      }
    }
  }
}

// The figures for MX formats are torchao's for as many standard normal numbers; others depend on
// where the deviation lies between powers of two.
TEST(NumberFormat, HasTheKnownErrorOnNormalWeights) {
  const Matrix w = RandomMatrix(512, 512, 11);
  const auto error = [&](const QuantizerSpec& spec) {
    const QuantizedWeight result = RunOk(w, nullptr, spec);
    double sum = 0;
    double norm = 0;
    for (size_t i = 0; i < w.values.size(); ++i) {
      const double e = w.values[i] - result.dequantized[i];
      sum += e * e;
      norm += static_cast<double>(w.values[i]) * w.values[i];
    }
    return sum / norm;
  };
  QuantizerSpec mx = SpecOf(QuantizationFormat::kMxfp4);
  mx.scale_rule = ScaleRule::kFloor;
  EXPECT_NEAR(error(mx), 0.0132, 0.0001);
  mx.scale_rule = ScaleRule::kEven;
  EXPECT_NEAR(error(mx), 0.0125, 0.0001);
  mx.scale_rule = ScaleRule::kRoundUp;
  EXPECT_NEAR(error(mx), 0.0133, 0.0001);
  EXPECT_NEAR(error(SpecOf(QuantizationFormat::kNvfp4)), 0.0091, 0.0001);
  EXPECT_NEAR(error({.method = QuantizationMethod::kRtn}), 0.0123, 0.0001);
}

TEST(NumberFormat, PartsOfTheErrorAddUp) {
  Matrix w = RandomMatrix(16, 64, 4);
  for (ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kEven, ScaleRule::kRoundUp}) {
    QuantizerSpec spec = SpecOf(QuantizationFormat::kMxfp4);
    spec.scale_rule = rule;
    const QuantizedWeight result = RunOk(w, nullptr, spec);
    double error = 0;
    double dead = 0;
    double norm = 0;
    for (size_t i = 0; i < w.values.size(); ++i) {
      const double e = w.values[i] - result.dequantized[i];
      error += e * e;
      dead += result.dequantized[i] == 0 ? e * e : 0;
      norm += static_cast<double>(w.values[i]) * w.values[i];
    }
    ASSERT_TRUE(result.error_parts.has_value());
    const RoundingErrorParts& parts = *result.error_parts;
    EXPECT_NEAR(parts.dead_zone, dead / norm, 1e-6 * dead / norm);
    EXPECT_GT(parts.grid_noise, 0);
    EXPECT_NEAR(parts.dead_zone + parts.grid_noise + parts.scale_bias, error / norm,
                1e-6 * error / norm);
    spec.baselines = false;
    EXPECT_FALSE(RunOk(w, nullptr, spec).error_parts.has_value());
  }
  // Squares that float32 cannot hold.
  const RoundingErrorParts parts =
      *RunOk(w, nullptr, SpecOf(QuantizationFormat::kMxfp4)).error_parts;
  for (const float factor : {0x1p-100f, 0x1p100f}) {
    Matrix scaled = w;
    for (float& value : scaled.values) value *= factor;
    const RoundingErrorParts same =
        *RunOk(scaled, nullptr, SpecOf(QuantizationFormat::kMxfp4)).error_parts;
    EXPECT_EQ(same.dead_zone, parts.dead_zone);
    EXPECT_EQ(same.grid_noise, parts.grid_noise);
    EXPECT_EQ(same.scale_bias, parts.scale_bias);
  }
  // A block whose largest number is 6 * 2^k has no scale bias.
  Matrix exact(1, 32);
  for (int64_t c = 0; c < 32; ++c) exact.at(0, c) = 6.0f - 0.37f * static_cast<float>(c);
  EXPECT_EQ(RunOk(exact, nullptr, SpecOf(QuantizationFormat::kMxfp4)).error_parts->scale_bias, 0);
  EXPECT_FALSE(RunOk(w, nullptr, SpecOf(QuantizationFormat::kNvfp4)).error_parts.has_value());
  EXPECT_FALSE(RunOk(Matrix(2, 32), nullptr, SpecOf(QuantizationFormat::kMxfp4)).error_parts);
}

TEST(NumberFormat, PartsOfTheErrorAgreeOnEveryTarget) {
  const Matrix w = RandomMatrix(16, 72, 4);  // the last block is short
  const QuantizerSpec spec = SpecOf(QuantizationFormat::kMxfp4);
  const RoundingErrorParts expected = *RunOk(w, nullptr, spec).error_parts;
  for (const int64_t target : UsableTargets()) {
    const OnlyTarget only(target);
    const RoundingErrorParts parts = *RunOk(w, nullptr, spec).error_parts;
    EXPECT_NEAR(parts.dead_zone, expected.dead_zone, 1e-8);
    EXPECT_NEAR(parts.grid_noise, expected.grid_noise, 1e-8);
    EXPECT_NEAR(parts.scale_bias, expected.scale_bias, 1e-8);
  }
}

TEST(NumberFormat, GptqOnUncorrelatedInputsRounds) {
  const Matrix w = RandomMatrix(7, 64, 8);
  std::vector<double> identity(64 * 64);
  for (size_t i = 0; i < 64; ++i) identity[65 * i] = 1;
  const GramStatistics statistics = ::ptqwatch::testing::WithHessian(identity);
  for (QuantizationFormat format : kFloatFormats) {
    QuantizerSpec spec = SpecOf(format, QuantizationMethod::kGptq);
    spec.min_tokens_ratio = 0;
    const QuantizedWeight gptq = RunOk(w, &statistics, spec);
    spec.method = QuantizationMethod::kRtn;
    EXPECT_EQ(gptq.codes, RunOk(w, &statistics, spec).codes) << ToString(format);
  }
}

TEST(Rotation, IsOrthonormalAndKeepsTheLoss) {
  ExecutionContext context;
  Matrix eye(72, 72);
  for (int64_t i = 0; i < 72; ++i) eye.at(i, i) = 1;
  ASSERT_TRUE(RotateColumns(72, 72, 16, eye.values.data(), context).ok());
  EXPECT_FLOAT_EQ(eye.at(0, 5), 0.25f);
  EXPECT_FLOAT_EQ(eye.at(5, 5), 0.25f);
  EXPECT_FLOAT_EQ(eye.at(1, 1), -0.25f);
  EXPECT_EQ(eye.at(0, 16), 0.0f);
  EXPECT_EQ(eye.at(70, 70), 1.0f) << "inputs beyond the last block stay";
  ASSERT_TRUE(RotateColumns(72, 72, 16, eye.values.data(), context).ok());
  for (int64_t i = 0; i < 72; ++i) EXPECT_FLOAT_EQ(eye.at(i, i), 1.0f);

  const Matrix w = RandomMatrix(24, 100, 5);
  const GramStatistics statistics = Gram(CorrelatedInputs(400, 100, 6));
  for (QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    QuantizerSpec spec = SpecOf(QuantizationFormat::kMxfp4, method);
    spec.rotation = 32;
    const QuantizedWeight result = RunOk(w, &statistics, spec);
    EXPECT_NEAR(*result.loss, NaiveTrace(w.values, result.dequantized, statistics),
                1e-4 * *result.loss);
    // The same by hand.
    Matrix rotated = w;
    GramStatistics turned = statistics;
    ASSERT_TRUE(RotateColumns(24, 100, 32, rotated.values.data(), context).ok());
    ASSERT_TRUE(RotateGram(100, 32, turned.sum.data(), context).ok());
    spec.rotation = 0;
    const QuantizedWeight by_hand = RunOk(rotated, &turned, spec);
    EXPECT_EQ(result.codes, by_hand.codes);
    EXPECT_EQ(result.loss, by_hand.loss);
  }
}

TEST(Rotation, RoundsTheExactProductOnce) {
  const Matrix w = RandomMatrix(8, 64, 13);
  for (const int64_t block : {16, 32, 64}) {
    Matrix rotated = w;
    ASSERT_TRUE(RotateColumns(8, 64, block, rotated.values.data(), {}).ok());
    for (int64_t r = 0; r < 8; ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < block; ++i) {
          // Sylvester's matrix: the sign is the parity of the bits that both indices have.
          const bool negative = std::popcount(static_cast<uint64_t>(i & (c % block))) % 2 != 0;
          const double x = w.at(r, c - c % block + i);
          sum += negative ? -x : x;
        }
        ASSERT_EQ(rotated.at(r, c),
                  static_cast<float>(sum * (1 / std::sqrt(static_cast<double>(block)))));
      }
    }
  }
}

TEST(Rotation, SpreadsAnOutlier) {
  Matrix w = RandomMatrix(16, 128, 9);
  for (int64_t r = 0; r < 16; ++r) w.at(r, 17) = 40;
  const GramStatistics statistics = Gram(RandomMatrix(512, 128, 10));
  QuantizerSpec spec{.method = QuantizationMethod::kRtn};
  const double plain = *RunOk(w, &statistics, spec).loss;
  spec.rotation = 128;
  EXPECT_LT(*RunOk(w, &statistics, spec).loss, plain / 4);
}

std::string MessageFor(const QuantizerSpec& spec) { return std::string(Validate(spec).message()); }

TEST(NumberFormat, RefusesFieldsThatDoNotFit) {
  QuantizerSpec spec = SpecOf(QuantizationFormat::kNvfp4);
  spec.bits = 3;
  EXPECT_THAT(MessageFor(spec), HasSubstr("bits is 3; it must be 4 for nvfp4"));
  spec = SpecOf(QuantizationFormat::kMxfp4);
  spec.group_rows = 128;
  EXPECT_THAT(MessageFor(spec), HasSubstr("group_rows is 128; it must be 1 for mxfp4"));
  spec = SpecOf(QuantizationFormat::kFp8);
  spec.group_rows = 0;
  EXPECT_THAT(MessageFor(spec), HasSubstr("group_rows is 0"));
  spec.group_rows = 128;
  EXPECT_TRUE(Validate(spec).ok());
  spec.clip = ClipSearch::kMse;
  EXPECT_THAT(MessageFor(spec), HasSubstr("1 with clip"));
  spec = SpecOf(QuantizationFormat::kMxfp4);
  spec.rotation = 24;
  EXPECT_THAT(MessageFor(spec), HasSubstr("rotation is 24"));
  spec = SpecOf(QuantizationFormat::kNvfp4, QuantizationMethod::kAwq);
  EXPECT_THAT(MessageFor(spec), HasSubstr("format is nvfp4; it must be int for awq"));
  spec = {};
  spec.method = QuantizationMethod::kAwq;
  spec.rotation = 16;
  EXPECT_THAT(MessageFor(spec), HasSubstr("rotation is 16; it must be 0 for awq"));
  spec = {};
  spec.format = static_cast<QuantizationFormat>(77);
  EXPECT_THAT(MessageFor(spec), HasSubstr("format is 77"));
  spec = {};
  spec.scale_rule = static_cast<ScaleRule>(7);
  EXPECT_THAT(MessageFor(spec), HasSubstr("scale_rule is 7"));
}

TEST(NumberFormat, DescribesWhatDecidesTheCodes) {
  EXPECT_EQ(Describe(SpecOf(QuantizationFormat::kNvfp4, QuantizationMethod::kGptq)),
            "gptq b4 nvfp4 act damp 0.01");
  EXPECT_EQ(Describe(SpecOf(QuantizationFormat::kMxfp4)), "rtn b4 mxfp4 even");
  QuantizerSpec spec = SpecOf(QuantizationFormat::kFp8);
  spec.group_size = 128;
  spec.group_rows = 128;
  EXPECT_EQ(Describe(spec), "rtn b8 fp8_e4m3 g128 rows 128");
  spec = {};
  spec.rotation = 64;
  EXPECT_EQ(Describe(spec), "gptq b4 g128 sym rotation 64 act damp 0.01");
  EXPECT_EQ(FormatOf(spec), "int-h64");
  EXPECT_EQ(FormatOf(SpecOf(QuantizationFormat::kNvfp4)), "nvfp4");
}

}  // namespace number_format_test
}  // namespace ptqwatch::internal
