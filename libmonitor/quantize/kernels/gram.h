#ifndef PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
#define PTQWATCH_QUANTIZE_KERNELS_GRAM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Row `i` of a matrix as `cols` floats; the pointer need only be good until the next call.
using RowSource = absl::FunctionRef<const float*(int64_t row)>;

/// The same for several threads at once: what it returns is either memory that stays, or `scratch`,
/// `cols` floats of the calling thread's own, once it has filled them.
using SharedRowSource = absl::FunctionRef<const float*(int64_t row, float* scratch)>;

/// Adds x^T x over `rows` rows to the upper triangle of `sum` ([cols, cols] row-major): sequential
/// float32 sums over every 256 rows, float64 across them. The same bits for any number of threads.
/// On an error `sum` is partly updated. Cost: rows * cols^2 FLOP; memory: 4 KiB * cols.
absl::Status AddGram(int64_t rows, int64_t cols, SharedRowSource source, double* sum,
                     const ExecutionContext& context);

/// tr(X S X^T) with X = [rows, cols] from `source` and S symmetric (only its upper triangle is
/// read). Float32 products where that keeps a relative error of about 1e-5, else float64 ones:
/// small matrices, and sums whose terms cancel to less than a hundredth. The same bits for any
/// number of threads. `source` is asked for each row once or twice. Cost: rows * cols^2 FLOP, three
/// times as much where float64 is needed; memory: 4 KiB * cols.
absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, SharedRowSource source,
                                      const double* s, const ExecutionContext& context);
/// With a source that is asked for one row at a time.
absl::StatusOr<double> QuadraticTrace(int64_t rows, int64_t cols, RowSource source, const double* s,
                                      const ExecutionContext& context);

/// Whether any of `count` values is NaN or infinite.
bool AnyNonFinite(const float* values, int64_t count);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_GRAM_H_
