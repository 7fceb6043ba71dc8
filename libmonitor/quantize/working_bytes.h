#ifndef PTQWATCH_QUANTIZE_WORKING_BYTES_H_
#define PTQWATCH_QUANTIZE_WORKING_BYTES_H_

#include <cstdint>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Estimates the peak memory of quantizing a [rows, cols] weight, in bytes, the result included.
int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_WORKING_BYTES_H_
