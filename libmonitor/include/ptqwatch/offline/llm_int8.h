#ifndef PTQWATCH_OFFLINE_LLM_INT8_H_
#define PTQWATCH_OFFLINE_LLM_INT8_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

/// A matrix as row-wise absmax int8: value = code * absmax / 127.
struct Int8Rows {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<int8_t> codes;  ///< [rows, cols], -127 .. 127
  std::vector<float> absmax;  ///< [rows]; 0 for a row of zeros, whose codes are 0
};

/// code = round_half_even(value * (127 / absmax)) in float32. Absmax is rounded to `absmax_dtype`
/// first. Errors: InvalidArgument for a number that is not finite, a bad shape, or an absmax that
/// overflows its dtype; Cancelled.
absl::StatusOr<Int8Rows> QuantizeInt8Rows(MatrixView values,
                                          ScaleDtype absmax_dtype = ScaleDtype::kFloat32,
                                          const ExecutionContext& context = {});

/// X W^T as LLM.int8 computes it: Dettmers et al. 2022, arXiv 2208.07339, section 3.
struct LlmInt8Product {
  std::vector<int64_t> outlier_columns;  ///< those with an |x| of at least the threshold, ascending
  /// Per token, without the entries that reach the threshold; codes of outlier columns are 0.
  Int8Rows inputs;
  /// [tokens, outputs]: outlier columns in full precision, the others through int8 codes, whose
  /// products are summed exactly.
  std::vector<double> output;
};

/// `inputs` is [tokens, d], `weight` [outputs, d]. Threshold 0: no outliers. Deterministic. Cost:
/// tokens * outputs * d integer multiply-adds, one thread. Errors: InvalidArgument (shapes, numbers
/// or a threshold that are not finite), Cancelled, ResourceExhausted.
absl::StatusOr<LlmInt8Product> MultiplyLlmInt8(MatrixView inputs, MatrixView weight,
                                               double threshold,
                                               const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_LLM_INT8_H_
