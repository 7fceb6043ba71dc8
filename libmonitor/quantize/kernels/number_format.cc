#include "quantize/kernels/number_format.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ptqwatch::internal {
namespace {

// In the order of QuantizationFormat.
constexpr NumberFormat kFormats[] = {
    {.name = "int"},
    {.name = "fp8_e4m3", .bits = 8, .exponent_bits = 4, .mantissa_bits = 3, .largest = 448},
    {.name = "fp8_e5m2", .bits = 8, .exponent_bits = 5, .mantissa_bits = 2, .largest = 57344},
    {.name = "mxfp4",
     .bits = 4,
     .exponent_bits = 2,
     .mantissa_bits = 1,
     .largest = 6,
     .scale = GroupScale::kE8m0,
     .group_size = 32},
    {.name = "mxfp8",
     .bits = 8,
     .exponent_bits = 4,
     .mantissa_bits = 3,
     .largest = 448,
     .scale = GroupScale::kE8m0,
     .group_size = 32},
    {.name = "nvfp4",
     .bits = 4,
     .exponent_bits = 2,
     .mantissa_bits = 1,
     .largest = 6,
     .scale = GroupScale::kE4m3,
     .group_size = 16},
};

int Bias(const NumberFormat& format) { return (1 << (format.exponent_bits - 1)) - 1; }

}  // namespace

const NumberFormat kE4m3 = kFormats[1];

float NumberFormat::SmallestNormal() const { return std::ldexp(1.0f, 1 - Bias(*this)); }

float NumberFormat::Level(uint8_t code) const {
  const int magnitude = code & ((1 << (bits - 1)) - 1);
  const int exponent = std::max(magnitude >> mantissa_bits, 1);
  const int hidden = magnitude >> mantissa_bits == 0 ? 0 : 1 << mantissa_bits;
  const int digits = hidden + (magnitude & ((1 << mantissa_bits) - 1));
  const float value =
      std::ldexp(static_cast<float>(digits), exponent - Bias(*this) - mantissa_bits);
  return code >> (bits - 1) != 0 ? -value : value;
}

absl::Span<const NumberFormat> NumberFormats() { return kFormats; }

const NumberFormat& NumbersOf(QuantizationFormat format) {
  const auto index = static_cast<size_t>(format);
  return kFormats[index < std::size(kFormats) ? index : 0];
}

int64_t GroupSizeOf(const QuantizerSpec& spec, int64_t cols) {
  const NumberFormat& format = NumbersOf(spec);
  const int64_t size = format.group_size > 0 ? format.group_size : spec.group_size;
  return size < 0 ? cols : std::min(size, cols);
}

float RoundToFormat(float value, const NumberFormat& format) {
  const float magnitude = std::min(std::abs(value), format.largest);
  const float quantum = std::ldexp(
      1.0f, std::ilogb(std::max(magnitude, format.SmallestNormal())) - format.mantissa_bits);
  return std::copysign(std::nearbyint(magnitude / quantum) * quantum, value);
}

uint8_t CodeOf(float value, const NumberFormat& format) {
  const float rounded = std::abs(RoundToFormat(value, format));
  const float normal = std::max(rounded, format.SmallestNormal());
  const int binade = std::ilogb(normal) - std::ilogb(format.SmallestNormal());
  const float quantum = std::ldexp(1.0f, std::ilogb(normal) - format.mantissa_bits);
  const int code = (binade << format.mantissa_bits) + static_cast<int>(rounded / quantum);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 1 << (format.bits - 1) : 0));
}

float PowerOfTwoScale(float largest, const NumberFormat& format, ScaleRule rule) {
  // Both are significand * 2^exponent with 0.5 <= significand < 1, or zero.
  int exponent = 0;
  const double significand = std::frexp(static_cast<double>(largest), &exponent);
  int top_exponent = 0;
  const double top_significand = std::frexp(static_cast<double>(format.largest), &top_exponent);
  int scale = exponent - top_exponent;
  switch (rule) {
    case ScaleRule::kFloor:
      break;
    case ScaleRule::kEven:
      // Rounds to the format's mantissa first, half up, which may carry into the exponent.
      scale += significand >= 1 - std::ldexp(1.0, -format.mantissa_bits - 2);
      break;
    case ScaleRule::kRoundUp:
      scale += significand > top_significand;
      break;
  }
  if (largest == 0) scale = -127;
  return std::ldexp(1.0f, std::clamp(scale, -127, 127));
}

}  // namespace ptqwatch::internal
