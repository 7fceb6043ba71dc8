#ifndef PTQWATCH_QUANTIZE_LAYER_H_
#define PTQWATCH_QUANTIZE_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/grid.h"
#include "quantize/shared_results.h"

namespace ptqwatch::internal {

/// H = 2 / tokens * sum.
struct Hessian {
  const double* sum = nullptr;
  double scale = 0;
  int64_t size = 0;

  double Diagonal(int64_t i) const { return scale * sum[i * size + i]; }
};

/// The checked arguments of one call of Quantize: the spec is valid, the shapes match, the weight
/// is not empty and all numbers are finite, with the exception of Method::finds_non_finite.
struct Layer {
  MatrixView weight;
  const GramStatistics* statistics = nullptr;  ///< may be null
  std::optional<Hessian> h;                    ///< absent without tokens
  QuantizerSpec spec;
  SharedResults* shared = nullptr;  ///< for this weight and these statistics; never null

  int64_t size() const { return weight.rows * weight.cols; }
  const float* Row(int64_t r) const { return weight.data + r * weight.cols; }
};

/// Makes a result with this status and no codes.
QuantizedWeight WithStatus(LayerStatus status, std::string detail);

/// The result for a layer whose scales overflow.
QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec);

/// Fits `grid` to `weight`, which has the shape of the layer, and adds to `clipped_groups`. A clip
/// search weighs errors by diag(H), or by 1 without H. Returns false if a scale overflows. Errors:
/// Cancelled, DeadlineExceeded.
absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context);

/// Whether results on this grid have error_parts: with power-of-two scales, unless the spec asks
/// for no baselines.
bool HasErrorParts(const Grid& grid, const QuantizerSpec& spec);
/// Sets result->error_parts, unless all weights are zero.
void SetErrorParts(const ErrorSums& sums, QuantizedWeight* result);

/// Rounds to nearest. `status` and `detail` of the result tell why RTN replaces another method.
/// Fills everything but the column counts.
absl::StatusOr<QuantizedWeight> RoundToNearest(const Layer& layer, LayerStatus status,
                                               std::string detail, const ExecutionContext& context);

/// Calls `work` for every row, with a checkpoint of the context about every 64 K numbers.
absl::Status ForEachRow(int64_t rows, int64_t cols, absl::FunctionRef<void(int64_t row)> work,
                        const ExecutionContext& context);

/// Reserves memory for codes and dequantized, which must be empty.
void ReserveWeights(const Layer& layer, QuantizedWeight* result);

/// Writes a row of W - W_hat to `out`, [cols]. Called concurrently for different rows.
using ErrorRow = absl::FunctionRef<void(int64_t row, float* out)>;
/// Returns tr(dW H dW^T) over the given rows; absent if not finite. Cost: rows * cols^2 FLOP.
absl::StatusOr<std::optional<double>> ErrorTrace(int64_t rows, int64_t cols, const Hessian& h,
                                                 ErrorRow error, const ExecutionContext& context);

/// Returns the loss of a decoded weight, [rows, cols]; absent without H.
absl::StatusOr<std::optional<double>> LayerLoss(const Layer& layer,
                                                const std::vector<float>& decoded,
                                                const ExecutionContext& context);

/// Sets result->output_energy to tr(W H W^T), computed once per layer; absent without H.
absl::Status AddOutputEnergy(const Layer& layer, QuantizedWeight* result,
                             const ExecutionContext& context);

/// Counts dead and duplicate inputs into `result`. Does nothing without H. Cost: cols * log(cols),
/// but up to cols^2 comparisons if many diagonal entries are equal.
absl::Status CountColumns(const Layer& layer, QuantizedWeight* result,
                          const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_LAYER_H_
