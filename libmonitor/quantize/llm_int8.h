#ifndef PTQWATCH_QUANTIZE_LLM_INT8_H_
#define PTQWATCH_QUANTIZE_LLM_INT8_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// A matrix as row-wise absmax int8: value = int8 code * absmax / 127.
struct Int8Rows {
  std::vector<uint8_t> codes;      ///< [rows, cols], 1 .. 255: the int8 code + 128
  std::vector<float> absmax;       ///< [rows]; 0 for a row of zeros, whose int8 codes are 0
  std::vector<float> dequantized;  ///< [rows, cols]
};

/// Quantizes rows: int8 code = round_half_even(value * (127 / absmax)) in float32, with absmax
/// first rounded to `absmax_dtype`. Errors: InvalidArgument for a NaN, an infinity, or an absmax
/// that overflows its dtype; Cancelled, DeadlineExceeded.
absl::StatusOr<Int8Rows> QuantizeInt8Rows(MatrixView values, ScaleDtype absmax_dtype,
                                          const ExecutionContext& context = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_LLM_INT8_H_
