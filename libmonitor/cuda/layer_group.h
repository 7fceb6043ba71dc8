#ifndef PTQWATCH_CUDA_LAYER_GROUP_H_
#define PTQWATCH_CUDA_LAYER_GROUP_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cuda/compute_device.h"
#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/kernel.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// How a loss is computed, if at all.
enum class Precision { kNone, kFloat32, kFloat64 };

/// What is to be done with a layer.
struct Attempt {
  QuantizationMethod method = QuantizationMethod::kRtn;  ///< kRtn where another fell back to it
  bool use_moments = false;                              ///< false without tokens
  bool quantize = true;  ///< false: the codes are there, only losses are wanted
  double damp = 0;
  Precision loss = Precision::kNone;  ///< for AWQ, of the search
  Precision rtn_loss = Precision::kNone;
  Precision energy = Precision::kNone;

  friend bool operator==(const Attempt&, const Attempt&) = default;
};

/// Layers that go through the kernels together. Pointers are by layer. Where all layers have the
/// same inputs, there is one set of arrays that depend on inputs alone: `inputs` is 1.
struct LayerGroup {
  int layers = 0;
  int inputs = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  QuantizerSpec spec;  ///< but for what is in `grids`
  Attempt attempt;
  Grids grids;

  PerLayer<const float> weight;
  PerLayer<const double> sum;
  PerLayer<const double> abs_sum;
  PerLayer<const float> abs_max;
  PerLayer<const int64_t> counts;
  PerLayer<uint8_t> codes;
  PerLayer<float> dequantized;
  PerLayer<float> scale;
  PerLayer<float> zero;
  PerLayer<float> channel_scale;
  PerLayer<int32_t> order;
  PerLayer<double> numbers;

  // Scratch, see TakeShared.
  Strided<double> diagonal;
  Strided<int32_t> position;
  Strided<double> partials;  ///< the larger of kMostParts and cols

  int64_t size() const { return rows * cols; }
  /// From one layer's array to the next, for arrays of `count` that depend on inputs alone.
  int64_t InputStride(int64_t count) const { return inputs == 1 ? 0 : count; }
  int64_t MostGroups() const;
  GridSource Source() const { return {.rows = rows, .cols = cols, .weight = weight}; }
  /// The weight with the columns of dead inputs set to zero.
  GridSource LiveSource() const;

  /// Takes diagonal, position and partials.
  absl::Status TakeShared(Arena& arena);
};

GridShape GridOf(int64_t cols, const QuantizerSpec& spec);

/// How many scales a weight has, by method.
int64_t ScaleCount(int64_t rows, int64_t cols, const GridShape& grid, QuantizationMethod method);

template <typename T>
PerLayer<const T> Const(const PerLayer<T>& batch) {
  PerLayer<const T> result;
  std::copy(batch.at, batch.at + kMaxBatch, result.at);
  return result;
}
template <typename T>
Strided<const T> Const(const Strided<T>& array) {
  return {.first = array.first, .stride = array.stride};
}

/// Takes `count` numbers for each of `layers` arrays.
template <typename T>
absl::Status TakeStrided(Arena& arena, int64_t layers, int64_t count, Strided<T>* array) {
  PTQWATCH_ASSIGN_OR_RETURN(array->first,
                            arena.TakeArray<T>(layers * count, "quantizing a weight"));
  array->stride = count;
  return absl::OkStatus();
}

/// Rows of a product [rows, depth] x [depth, width] for which it takes less than about 1 ms on an
/// H100, at 50 TFLOP/s. Does not depend on what else is in the group, and nor do the sums of
/// kernels of ours; cuBLAS's on a GPU may.
int64_t RowsPerProduct(int64_t rows, int64_t width, int64_t depth);

/// Layers of that shape that may go together: larger ones fill a device alone, and their products
/// would take too long together.
int64_t MostLayers(int64_t rows, int64_t cols);

/// The most that PartsOf returns: what a layer's partials hold at least.
inline constexpr int64_t kMostParts = 256;

/// Blocks of threads that share a reduction over `size` numbers.
int64_t PartsOf(int64_t size);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LAYER_GROUP_H_
