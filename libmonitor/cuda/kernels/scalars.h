#ifndef PTQWATCH_CUDA_KERNELS_SCALARS_H_
#define PTQWATCH_CUDA_KERNELS_SCALARS_H_

#include <cmath>
#include <cstdint>

#include "base/float_bits.h"
#include "cuda/kernels/kernel.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

PTQWATCH_HOST_DEVICE inline float FromBFloat16(uint16_t bits) {
  return FloatFromBits(static_cast<uint32_t>(bits) << 16);
}
/// Rounds to nearest, ties to even. `value` must be finite; a large one becomes infinity.
PTQWATCH_HOST_DEVICE inline uint16_t ToBFloat16(float value) {
  const uint32_t bits = FloatBits(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// A number as the sum of two bfloat16: the nearest one, or the largest finite one if that would be
/// infinite, and the nearest to the rest. Off by at most 2^-16 of the number, and the rest is at
/// most 2^-8 of it.
struct TwoBFloat16 {
  uint16_t high;
  uint16_t rest;
};
PTQWATCH_HOST_DEVICE inline TwoBFloat16 Split(float x) {
  uint16_t high = ToBFloat16(x);
  if ((high & 0x7fffu) == 0x7f80u) --high;
  return {high, ToBFloat16(x - FromBFloat16(high))};
}

PTQWATCH_HOST_DEVICE inline float FromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return FloatFromBits(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return FloatFromBits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

/// As RoundScale in quantize/kernels/scale_dtype.h.
PTQWATCH_HOST_DEVICE inline float RoundToDtype(float value, ScaleDtype dtype) {
  if (dtype == ScaleDtype::kFloat32 || value == 0 || !IsFiniteBits(value)) return value;
  const bool half = dtype == ScaleDtype::kFloat16;
  const int digits = half ? 11 : 8;
  const int min_exponent = half ? -14 : -126;
  const double largest = half ? 65504.0 : 0x1.FEp127;
  int exponent = ilogbf(value);
  if (exponent < min_exponent) exponent = min_exponent;
  const double quantum = ldexp(1.0, exponent - (digits - 1));
  double rounded = rint(static_cast<double>(value) / quantum) * quantum;
  if (rounded < quantum) rounded = quantum;
  if (rounded > largest) return FloatFromBits(0x7f800000u);
  return static_cast<float>(rounded);
}

PTQWATCH_HOST_DEVICE inline float Larger(float a, float b) { return b > a ? b : a; }

/// The code of a number on a grid. NaN gives `bottom`.
PTQWATCH_HOST_DEVICE inline float CodeOf(float w, float scale, float zero, float bottom,
                                         float top) {
  const float steps = rintf(w / scale) + zero;
  if (!(steps > bottom)) return bottom;
  return steps < top ? steps : top;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_SCALARS_H_
