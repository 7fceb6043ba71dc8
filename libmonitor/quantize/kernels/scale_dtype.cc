#include "quantize/kernels/scale_dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ptqwatch::internal {
namespace {

struct Format {
  int digits;        // of the significand, including the hidden one
  int min_exponent;  // of normal numbers
  double largest;
};

constexpr Format kHalf{.digits = 11, .min_exponent = -14, .largest = 65504.0};
constexpr Format kBrain{.digits = 8, .min_exponent = -126, .largest = 0x1.FEp127};

}  // namespace

float RoundScale(float value, ScaleDtype dtype) {
  if (dtype == ScaleDtype::kFloat32 || value == 0 || !std::isfinite(value)) return value;
  const Format& format = dtype == ScaleDtype::kFloat16 ? kHalf : kBrain;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  // In float64, both steps are exact except for the rounding itself.
  const double quantum = std::ldexp(1.0, exponent - (format.digits - 1));
  const double rounded =
      std::max(std::nearbyint(static_cast<double>(value) / quantum) * quantum, quantum);
  if (rounded > format.largest) return std::numeric_limits<float>::infinity();
  return static_cast<float>(rounded);
}

}  // namespace ptqwatch::internal
