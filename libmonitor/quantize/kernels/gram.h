#ifndef PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
#define PTQWATCH_QUANTIZE_KERNELS_GRAM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Row `i` of a matrix as `cols` floats, valid until the next call.
using RowSource = absl::FunctionRef<const float*(int64_t row)>;

/// The same, callable by several threads at once. It returns either memory that stays valid, or
/// `scratch`, which is `cols` floats that belong to the calling thread and that it has filled.
using SharedRowSource = absl::FunctionRef<const float*(int64_t row, float* scratch)>;

/// Rows that share one pass over the result. Where a caller splits its rows, it must split at
/// multiples of this to get the sums of one call.
constexpr int64_t kGramGroupRows = 1024;

/// Adds x^T x over `rows` rows to the upper triangle of `sum` ([cols, cols] row-major). Up to 256
/// columns sums are float64; beyond that, float32 over every 256 rows and float64 across them. The
/// same bits for any number of threads. On an error `sum` is partly updated. Cost: rows * cols^2
/// FLOP; memory: 4 KiB * cols. Errors: Cancelled, DeadlineExceeded.
absl::Status AddGram(int64_t rows, int64_t cols, SharedRowSource source, double* sum,
                     const ExecutionContext& context);

/// tr(X S X^T) with X = [rows, cols] from `source` and S symmetric (only its upper triangle is
/// read). Products are float32 where that keeps a relative error of about 1e-5. They are float64
/// for small matrices, and where the terms cancel to less than a hundredth. The same bits for any
/// number of threads. `source` is called once or twice for each row. Cost: rows * cols^2 FLOP,
/// three times as much where float64 is needed; memory: 4 KiB * cols. Errors: Cancelled,
/// DeadlineExceeded.
absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, SharedRowSource source,
                                      const double* s, const ExecutionContext& context);
/// The same with a source that is called for one row at a time.
absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, RowSource source, const double* s,
                                      const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
