#include "quantize/kernels/number_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace ptqwatch::internal {
namespace {

// In the order of QuantizationFormat.
constexpr NumberFormat kFormats[] = {
    {.name = "int", .checkpoint_format = "pack-quantized"},
    {.name = "fp8_e4m3",
     .bits = 8,
     .exponent_bits = 4,
     .mantissa_bits = 3,
     .largest = 448,
     .checkpoint_format = "float-quantized"},
    {.name = "fp8_e5m2",
     .bits = 8,
     .exponent_bits = 5,
     .mantissa_bits = 2,
     .largest = 57344,
     .checkpoint_format = "float-quantized"},
    {.name = "mxfp4",
     .bits = 4,
     .exponent_bits = 2,
     .mantissa_bits = 1,
     .largest = 6,
     .scale = GroupScale::kE8m0,
     .group_size = 32,
     .checkpoint_format = "mxfp4-pack-quantized"},
    {.name = "mxfp8",
     .bits = 8,
     .exponent_bits = 4,
     .mantissa_bits = 3,
     .largest = 448,
     .scale = GroupScale::kE8m0,
     .group_size = 32,
     .checkpoint_format = "mxfp8-quantized"},
    {.name = "nvfp4",
     .bits = 4,
     .exponent_bits = 2,
     .mantissa_bits = 1,
     .largest = 6,
     .scale = GroupScale::kE4m3,
     .group_size = 16,
     .checkpoint_format = "nvfp4-pack-quantized"},
};

int Bias(const NumberFormat& format) { return (1 << (format.exponent_bits - 1)) - 1; }

// Of float32, which all of this is computed in: ldexp, ilogb and nearbyint would be calls.
constexpr int kDigits = 23;
constexpr int kBias = 127;
uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
// The exponent of a normal number that is not negative, plus kBias.
int BiasedExponent(float value) { return static_cast<int>(BitsOf(value) >> kDigits); }
// 2^exponent, a normal number.
float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + kBias) << kDigits);
}

}  // namespace

const NumberFormat kE4m3 = kFormats[1];

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
  const int exponent = BiasedExponent(std::max(magnitude, format.SmallestNormal())) - kBias;
  // Adding 1.5 * 2^23 spacings rounds to a multiple of the spacing, half to even.
  const float shifter = 1.5f * PowerOfTwo(exponent - format.mantissa_bits + kDigits);
  return std::copysign((magnitude + shifter) - shifter, value);
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
  constexpr uint32_t kMantissa = (1u << kDigits) - 1;
  const uint32_t top = BitsOf(format.largest);
  uint32_t bits = BitsOf(std::abs(largest));  // it may be -0
  switch (rule) {
    case ScaleRule::kFloor:
      break;
    case ScaleRule::kEven:
      // Rounds to the format's mantissa first, half up, which may carry into the exponent.
      bits += 1u << (kDigits - format.mantissa_bits - 1);
      break;
    case ScaleRule::kRoundUp:
      if ((bits & kMantissa) > (top & kMantissa)) bits += kMantissa + 1;
      break;
  }
  // Numbers below float32's normal ones, and 0, come out below -127.
  const int exponent = static_cast<int>(bits >> kDigits) - static_cast<int>(top >> kDigits);
  return exponent <= -kBias ? 0x1p-127f : PowerOfTwo(std::min(exponent, kBias));
}

}  // namespace ptqwatch::internal
