#ifndef PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_
#define PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_

#include <cmath>
#include <cstdint>

#include "absl/types/span.h"
#include "base/float_bits.h"
#include "base/host_device.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// How a format stores the scales of its groups.
enum class GroupScale {
  kSpec,  ///< in QuantizerSpec::scale_dtype
  kE8m0,  ///< a power of two, chosen by QuantizerSpec::scale_rule
  kE4m3,  ///< an E4M3 number times a float for the whole tensor
};

/// A number format of codes. number_format.cc lists the formats in the order of QuantizationFormat.
/// Kernels for GPUs take copies of its rows.
struct NumberFormat {
  const char* name = nullptr;  ///< null in copies made on a GPU
  int bits = 0;                ///< of a code; 0: any
  /// A floating-point code is a sign, exponent bits and mantissa bits. 0 mantissa bits: codes are
  /// integers with a scale and a zero.
  int exponent_bits = 0;
  int mantissa_bits = 0;
  float largest = 0;  ///< of a floating-point code; larger numbers saturate
  GroupScale scale = GroupScale::kSpec;
  int group_size = 0;  ///< the only one; 0: QuantizerSpec::group_size
  /// The format of such checkpoints in compressed-tensors; null if it has no such format,
  /// and in copies made on a GPU.
  const char* checkpoint_format = nullptr;

  PTQWATCH_HOST_DEVICE bool is_float() const { return mantissa_bits > 0; }
  PTQWATCH_HOST_DEVICE int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// The smallest normal number; below it the spacing stays the same.
  PTQWATCH_HOST_DEVICE float SmallestNormal() const {
    return FloatFromBits(static_cast<uint32_t>(128 - Bias()) << 23);
  }
  /// The value of a floating-point code.
  PTQWATCH_HOST_DEVICE float Level(uint8_t code) const {
    const int magnitude = code & ((1 << (bits - 1)) - 1);
    const int field = magnitude >> mantissa_bits;
    const int fraction = magnitude & ((1 << mantissa_bits) - 1);
    const int digits = field == 0 ? fraction : fraction + (1 << mantissa_bits);
    const int exponent = field == 0 ? 1 : field;
    const float value = ldexpf(static_cast<float>(digits), exponent - Bias() - mantissa_bits);
    return code >> (bits - 1) != 0 ? -value : value;
  }
};

/// E4M3 without infinities, the format of NVFP4's scales. Largest number 448.
PTQWATCH_HOST_DEVICE constexpr NumberFormat E4m3() {
  return {.name = "fp8_e4m3",
          .bits = 8,
          .exponent_bits = 4,
          .mantissa_bits = 3,
          .largest = 448,
          .checkpoint_format = "float-quantized"};
}

/// All formats, indexed by QuantizationFormat.
absl::Span<const NumberFormat> NumberFormats();
/// Returns the format; for an invalid value, which Validate refuses, that is kInt.
const NumberFormat& NumbersOf(QuantizationFormat format);
inline const NumberFormat& NumbersOf(const QuantizerSpec& spec) { return NumbersOf(spec.format); }

/// Inputs that share a scale in a row of `cols` inputs: the format's or else the spec's, at most
/// cols.
int64_t GroupSizeOf(const QuantizerSpec& spec, int64_t cols);

/// A number of a format with floating-point codes.
struct FormatNumber {
  float value = 0;
  uint8_t code = 0;
};

/// The nearest number of a format with floating-point codes, half to even, saturating. NaN gives a
/// zero of either sign. FloatPoints in grid_points-inl.h does the same to vectors.
PTQWATCH_HOST_DEVICE inline FormatNumber NearestNumber(float value, const NumberFormat& format) {
  const uint32_t sign = FloatBits(value) & 0x80000000u;
  const float whole = value == value ? fabsf(value) : 0.0f;
  const float magnitude = whole < format.largest ? whole : format.largest;
  // The power of two at or below the magnitude; the spacing is a fixed fraction of it.
  const float power = FloatFromBits(FloatBits(magnitude) & 0x7f800000u);
  const float smallest = format.SmallestNormal();
  const float binade = power > smallest ? power : smallest;
  // Adding 1.5 * 2^23 spacings rounds to a multiple of the spacing, half to even, and leaves the
  // multiple in the lowest bits of the sum.
  const int shift = 23 - format.mantissa_bits;
  const float shifter = binade * (1.5f * static_cast<float>(1 << shift));
  const float sum = magnitude + shifter;
  const uint32_t multiple = FloatBits(sum) - FloatBits(shifter);
  const uint32_t steps = (FloatBits(binade) - FloatBits(smallest)) >> shift;
  return {.value = FloatFromBits(FloatBits(sum - shifter) | sign),
          .code = static_cast<uint8_t>((steps + multiple) | (sign >> (32 - format.bits)))};
}

/// The scale of an MX block (OCP Microscaling Formats 1.0, section 6.3): a power of two from 2^-127
/// to 2^127. `largest` is max|w| of the block, finite.
PTQWATCH_HOST_DEVICE inline float PowerOfTwoScale(float largest, const NumberFormat& format,
                                                  ScaleRule rule) {
  constexpr uint32_t kMantissa = (1u << 23) - 1;
  const uint32_t top = FloatBits(format.largest);
  uint32_t bits = FloatBits(fabsf(largest));  // it may be -0
  // kEven rounds to the format's mantissa first, half up, which may carry into the exponent.
  if (rule == ScaleRule::kEven) bits += 1u << (22 - format.mantissa_bits);
  if (rule == ScaleRule::kRoundUp && (bits & kMantissa) > (top & kMantissa)) bits += kMantissa + 1;
  // Numbers below float32's normal ones, and 0, come out below -127.
  const int exponent = static_cast<int>(bits >> 23) - static_cast<int>(top >> 23);
  if (exponent <= -127) return 0x1p-127f;
  return FloatFromBits(static_cast<uint32_t>((exponent < 127 ? exponent : 127) + 127) << 23);
}

/// NVFP4's scale for the tensor.
struct TensorScale {
  float factor = 0;   ///< max|w| / (448 * 6): a scale is an E4M3 number times this
  float inverse = 0;  ///< as checkpoints store it
};

/// `largest` is the weight's max|w|, finite; if it is so small that the inverse overflows, both are
/// 1.
PTQWATCH_HOST_DEVICE inline TensorScale TensorScaleOf(float largest, const NumberFormat& format) {
  constexpr float kSmallest = 0x1p-126f;
  const float top = E4m3().largest * format.largest;
  const float inverse = top / (largest > kSmallest ? largest : kSmallest);
  if (!IsFiniteBits(inverse)) return {.factor = 1, .inverse = 1};
  return {.factor = largest / top, .inverse = inverse};
}

/// The scale, never 0, of a group with max|w| = `largest` in a format with floating-point codes, as
/// the format stores it. With GroupScale::kSpec the caller rounds it to its dtype. `tensor_factor`
/// is for GroupScale::kE4m3.
PTQWATCH_HOST_DEVICE inline float ScaleInFormat(float largest, const NumberFormat& format,
                                                ScaleRule rule, float tensor_factor) {
  switch (format.scale) {
    case GroupScale::kE8m0:
      return PowerOfTwoScale(largest, format, rule);
    case GroupScale::kE4m3: {
      const NumberFormat e4m3 = E4m3();
      const float exact = largest / format.largest / tensor_factor;
      const float least = e4m3.SmallestNormal();
      return NearestNumber(exact > least ? exact : least, e4m3).value * tensor_factor;
    }
    case GroupScale::kSpec:
      break;
  }
  const float exact = (largest > 0 ? largest : 1.0f) / format.largest;
  const float smallest = FloatFromBits(1);
  return exact > smallest ? exact : smallest;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_
