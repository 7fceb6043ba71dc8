#ifndef PTQWATCH_QUANTIZE_KERNELS_INT8_ROW_H_
#define PTQWATCH_QUANTIZE_KERNELS_INT8_ROW_H_

#include <cstdint>

namespace ptqwatch::internal {

/// Quantizes `count` finite values to int8 by their absmax: n = clamp(round_half_even(value *
/// (127 / absmax)), -127, 127) in float32, codes = n + 128, decoded = n * absmax / 127, rounded
/// once. With absmax 0 every n is 0. `codes` and `decoded` hold `count` entries.
void QuantizeInt8Row(const float* values, int64_t count, float absmax, uint8_t* codes,
                     float* decoded);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_INT8_ROW_H_
