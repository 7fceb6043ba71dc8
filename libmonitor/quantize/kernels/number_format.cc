#include "quantize/kernels/number_format.h"

#include <algorithm>
#include <iterator>

namespace ptqwatch::internal {
namespace {

// In the order of QuantizationFormat.
constexpr NumberFormat kFormats[] = {
    {.name = "int", .checkpoint_format = "pack-quantized"},
    E4m3(),
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

}  // namespace

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

}  // namespace ptqwatch::internal
