#include "quantize/kernels/scale_dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ptqwatch::internal {
namespace scale_dtype_test {

const float kInf = std::numeric_limits<float>::infinity();

// All positive finite numbers of a format, ascending, from its bit patterns.
std::vector<float> AllNumbers(int digits, int min_exponent, int max_exponent) {
  std::vector<float> numbers;
  const int hidden = 1 << (digits - 1);
  for (int m = 1; m < hidden; ++m) {
    numbers.push_back(std::ldexp(static_cast<float>(m), min_exponent - digits + 1));
  }
  for (int e = min_exponent; e <= max_exponent; ++e) {
    for (int m = hidden; m < 2 * hidden; ++m) {
      numbers.push_back(std::ldexp(static_cast<float>(m), e - digits + 1));
    }
  }
  return numbers;
}

void ExpectRoundsHalfToEven(ScaleDtype dtype, const std::vector<float>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(RoundScale(numbers[i], dtype), numbers[i]);
    if (i + 1 == numbers.size()) break;
    const float low = numbers[i];
    const float high = numbers[i + 1];
    const float middle = low + (high - low) / 2;
    // Numbers are counted from 1, so that even significands are at odd places.
    ASSERT_EQ(RoundScale(middle, dtype), i % 2 == 1 ? low : high) << low;
    ASSERT_EQ(RoundScale(std::nextafter(middle, 0.0f), dtype), low);
    ASSERT_EQ(RoundScale(std::nextafter(middle, kInf), dtype), high);
  }
}

TEST(RoundScale, RoundsHalfToEvenAtEveryHalf) {
  const std::vector<float> halves = AllNumbers(11, -14, 15);
  EXPECT_EQ(halves.back(), 65504.0f);
  ExpectRoundsHalfToEven(ScaleDtype::kFloat16, halves);
}

TEST(RoundScale, RoundsHalfToEvenAtEveryBrainFloat) {
  ExpectRoundsHalfToEven(ScaleDtype::kBFloat16, AllNumbers(8, -126, 127));
}

TEST(RoundScale, NeverMakesZeroOfAPositiveNumber) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(RoundScale(tiny, ScaleDtype::kFloat16), 0x1p-24f);
  EXPECT_EQ(RoundScale(1e-20f, ScaleDtype::kFloat16), 0x1p-24f);
  EXPECT_EQ(RoundScale(tiny, ScaleDtype::kBFloat16), 0x1p-133f);
  EXPECT_EQ(RoundScale(tiny, ScaleDtype::kFloat32), tiny);
  for (ScaleDtype dtype : {ScaleDtype::kFloat32, ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
    EXPECT_EQ(RoundScale(0.0f, dtype), 0.0f);
  }
}

TEST(RoundScale, OverflowsToInfinity) {
  EXPECT_EQ(RoundScale(65519.99f, ScaleDtype::kFloat16), 65504.0f);
  EXPECT_EQ(RoundScale(65520.0f, ScaleDtype::kFloat16), kInf);
  EXPECT_EQ(RoundScale(std::numeric_limits<float>::max(), ScaleDtype::kBFloat16), kInf);
  EXPECT_EQ(RoundScale(kInf, ScaleDtype::kFloat16), kInf);
}

}  // namespace scale_dtype_test
}  // namespace ptqwatch::internal
