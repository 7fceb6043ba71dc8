#include "checkpoint/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace ptqwatch::internal {
namespace float16_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of the bits by the definition of the format.
double Meaning(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * kInfinity : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

TEST(Float16, EveryNumberIsReadAndWrittenBack) {
  for (int i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = FloatFromF16(bits);
    if (std::isnan(Meaning(bits, 5, 10))) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(value)))) << i;
    } else {
      ASSERT_EQ(value, Meaning(bits, 5, 10)) << i;
      ASSERT_EQ(F16FromFloat(value), bits) << i;
    }
  }
}

TEST(BFloat16, EveryNumberIsReadAndWrittenBack) {
  for (int i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = FloatFromBf16(bits);
    if (std::isnan(Meaning(bits, 8, 7))) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(value)))) << i;
    } else {
      ASSERT_EQ(value, Meaning(bits, 8, 7)) << i;
      ASSERT_EQ(Bf16FromFloat(value), bits) << i;
    }
  }
}

// Between two neighbours: the nearer one, and in the middle the one with the even last bit.
template <typename ToBits, typename ToFloat>
void ExpectRoundsToNearest(int last, ToBits to_bits, ToFloat to_float) {
  for (int i = 0; i < last; ++i) {
    const auto lower = static_cast<uint16_t>(i);
    const auto upper = static_cast<uint16_t>(i + 1);
    const float middle = to_float(lower) / 2 + to_float(upper) / 2;
    ASSERT_EQ(to_bits(middle), i % 2 == 0 ? lower : upper) << i;
    ASSERT_EQ(to_bits(std::nextafter(middle, 0.0f)), lower) << i;
    ASSERT_EQ(to_bits(std::nextafter(middle, kInfinity)), upper) << i;
  }
}

TEST(Float16, RoundsHalfToEven) { ExpectRoundsToNearest(0x7bff, F16FromFloat, FloatFromF16); }

TEST(BFloat16, RoundsHalfToEven) { ExpectRoundsToNearest(0x7f7e, Bf16FromFloat, FloatFromBf16); }

TEST(Float16, BeyondTheRangeIsInfinity) {
  EXPECT_EQ(F16FromFloat(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(F16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(F16FromFloat(-1e30f), 0xfc00);
  EXPECT_EQ(F16FromFloat(-1e-30f), 0x8000);
}

TEST(FloatFromDouble, RoundsAndEndsInInfinity) {
  EXPECT_EQ(FloatFromDouble(1.0 + 0x1p-24), 1.0f);
  EXPECT_EQ(FloatFromDouble(1.0 + 0x1.8p-24), 1.0f + 0x1p-23f);
  EXPECT_EQ(FloatFromDouble(0x1.fffffefp127), std::numeric_limits<float>::max());
  EXPECT_EQ(FloatFromDouble(1e300), kInfinity);
  EXPECT_EQ(FloatFromDouble(-1e300), -kInfinity);
  EXPECT_TRUE(std::isnan(FloatFromDouble(std::nan(""))));
}

}  // namespace float16_test
}  // namespace ptqwatch::internal
