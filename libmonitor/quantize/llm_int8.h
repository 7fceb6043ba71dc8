#ifndef PTQWATCH_QUANTIZE_LLM_INT8_H_
#define PTQWATCH_QUANTIZE_LLM_INT8_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "quantize/layer.h"

namespace ptqwatch::internal {

/// A matrix as row-wise absmax int8: value = code * absmax / 127.
struct Int8Rows {
  std::vector<int8_t> codes;  ///< [rows, cols], -127 .. 127
  std::vector<float> absmax;  ///< [rows]; 0 for a row of zeros, whose codes are 0
};

/// Quantizes rows: code = round_half_even(value * (127 / absmax)) in float32, with absmax first
/// rounded to `absmax_dtype`. Errors: InvalidArgument for a NaN, an infinity, or an absmax that
/// overflows its dtype; Cancelled, DeadlineExceeded.
absl::StatusOr<Int8Rows> QuantizeInt8Rows(MatrixView values, ScaleDtype absmax_dtype,
                                          const ExecutionContext& context = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_LLM_INT8_H_
