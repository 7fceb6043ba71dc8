#ifndef PTQWATCH_QUANTIZE_ROTATION_H_
#define PTQWATCH_QUANTIZE_ROTATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// The orthonormal, symmetric matrix B with Walsh-Hadamard matrices / sqrt(block) on its diagonal,
/// for QuantizerSpec::rotation. Inputs beyond the last whole block stay as they are. `block` is a
/// power of two. Cost: log2(block) additions a number. Errors: Cancelled, DeadlineExceeded.

/// matrix = matrix B, for [rows, cols], computed in float64 and rounded once.
absl::Status RotateColumns(int64_t rows, int64_t cols, int64_t block, float* matrix,
                           const ExecutionContext& context);
/// gram = B gram B, for [size, size], symmetric before and after.
absl::Status RotateGram(int64_t size, int64_t block, double* gram, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_ROTATION_H_
