#ifndef PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_
#define PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// How a format stores the scales of its groups.
enum class GroupScale {
  kSpec,  ///< in QuantizerSpec::scale_dtype
  kE8m0,  ///< a power of two, chosen by QuantizerSpec::scale_rule
  kE4m3,  ///< an E4M3 number times a float for the whole tensor
};

/// A number format of codes. number_format.cc lists the formats in the order of QuantizationFormat.
struct NumberFormat {
  std::string_view name;
  int bits = 0;  ///< of a code; 0: any
  /// A floating-point code is a sign, exponent bits and mantissa bits. 0 mantissa bits: codes are
  /// integers with a scale and a zero.
  int exponent_bits = 0;
  int mantissa_bits = 0;
  float largest = 0;  ///< of a floating-point code; larger numbers saturate
  GroupScale scale = GroupScale::kSpec;
  int group_size = 0;  ///< the only one; 0: QuantizerSpec::group_size
  /// What compressed-tensors calls checkpoints with such weights; empty if it has no such format.
  std::string_view checkpoint_format = {};

  bool is_float() const { return mantissa_bits > 0; }
  /// The smallest normal number; below it the spacing stays the same.
  float SmallestNormal() const {
    // Its exponent field is 1 in the format, whose bias is 2^(exponent_bits - 1) - 1.
    return std::bit_cast<float>((129u - (1u << (exponent_bits - 1))) << 23);
  }
  /// The value of a floating-point code.
  float Level(uint8_t code) const;
};

/// E4M3 without infinities, the format of NVFP4's scales. Largest number 448.
extern const NumberFormat kE4m3;

/// All formats, indexed by QuantizationFormat.
absl::Span<const NumberFormat> NumberFormats();
/// Returns the format; for an invalid value, which Validate refuses, that is kInt.
const NumberFormat& NumbersOf(QuantizationFormat format);
inline const NumberFormat& NumbersOf(const QuantizerSpec& spec) { return NumbersOf(spec.format); }

/// Inputs that share a scale in a row of `cols` inputs: the format's or else the spec's, at most
/// cols.
int64_t GroupSizeOf(const QuantizerSpec& spec, int64_t cols);

/// Rounds `value` to a format with floating-point codes, half to even, saturating.
float RoundToFormat(float value, const NumberFormat& format);
/// The code of the nearest number.
uint8_t CodeOf(float value, const NumberFormat& format);

/// The scale of an MX block (OCP Microscaling Formats 1.0, section 6.3): a power of two from 2^-127
/// to 2^127. `largest` is max|w| of the block, finite.
float PowerOfTwoScale(float largest, const NumberFormat& format, ScaleRule rule);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_NUMBER_FORMAT_H_
