#ifndef PTQWATCH_CHECKPOINT_FLOAT16_H_
#define PTQWATCH_CHECKPOINT_FLOAT16_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ptqwatch::internal {

/// Converts from IEEE 754 binary16. Exact; NaN stays NaN.
inline float FloatFromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -magnitude : magnitude;
}

inline float FloatFromBf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

/// Rounds half to even, and to infinity beyond float32's range (which a plain cast does not
/// guarantee); NaN stays NaN.
inline float FloatFromDouble(double value) {
  // Half a step above the largest float.
  constexpr double kLimit = 0x1.ffffffp127;
  if (std::fabs(value) >= kLimit) {
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(value > 0) - 0.5f);
  }
  return static_cast<float>(value);
}

/// Rounds half to even, and to infinity beyond the range; NaN stays NaN.
inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline uint16_t F16FromFloat(float value) {
  const uint16_t sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is half a step above the largest number, 65504, and the tie rounds to even, which is up.
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  uint32_t bits = 0;
  if (magnitude < 0x1p-14f) {
    // Subnormal: a multiple of 2^-24. 1024 of them carry into the smallest normal number.
    bits = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  } else {
    const uint32_t wide = std::bit_cast<uint32_t>(magnitude) - (112u << 23);
    bits = (wide + 0xfffu + (wide >> 13 & 1u)) >> 13;
  }
  return static_cast<uint16_t>(sign | bits);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CHECKPOINT_FLOAT16_H_
