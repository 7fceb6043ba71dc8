#ifndef PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
#define PTQWATCH_QUANTIZE_KERNELS_GRAM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// A row of a matrix as `cols` floats. Several threads may call it at once. It returns either
/// memory that stays valid, or `scratch` (`cols` floats of the calling thread), which it has
/// filled.
using SharedRowSource = absl::FunctionRef<const float*(int64_t row, float* scratch)>;

/// The number of rows that share one pass over the result. A caller that splits its rows must split
/// at multiples of this to get the sums of a single call.
constexpr int64_t kGramGroupRows = 1024;

/// Adds x^T x over `rows` rows to the upper triangle of `sum` ([cols, cols] row-major). With up to
/// 256 columns, sums are float64; with more, float32 over every 256 rows and float64 across them.
/// Gives the same bits for any number of threads. After an error `sum` is partly updated. Cost:
/// rows * cols^2 FLOP; memory: 4 KiB * cols. Errors: Cancelled, DeadlineExceeded.
absl::Status AddGram(int64_t rows, int64_t cols, SharedRowSource source, double* sum,
                     const ExecutionContext& context);

/// tr(X S X^T) with X = [rows, cols] from `source` and S symmetric (reads only its upper triangle).
/// Products are float32 if that keeps a relative error of about 1e-5, and float64 for small
/// matrices or if the terms cancel to less than a hundredth. Gives the same bits for any number of
/// threads. Calls `source` once or twice for each row. Cost: rows * cols^2 FLOP, three times as
/// much if float64 is needed; memory: 4 KiB * cols. Errors: Cancelled, DeadlineExceeded.
absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, SharedRowSource source,
                                      const double* s, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
