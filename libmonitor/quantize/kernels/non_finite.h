#ifndef PTQWATCH_QUANTIZE_KERNELS_NON_FINITE_H_
#define PTQWATCH_QUANTIZE_KERNELS_NON_FINITE_H_

#include <bit>
#include <cstdint>

namespace ptqwatch::internal {

/// Returns whether any of `count` values is NaN or infinite.
inline bool AnyNonFinite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000u;
  // Without an early exit the loop is vectorised.
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return found != 0;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_NON_FINITE_H_
