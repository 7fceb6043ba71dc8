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
#include "quantize/methods.h"

namespace ptqwatch::internal {

/// The precision of a loss; kNone if it is not computed.
enum class Precision { kNone, kFloat32, kFloat64 };

/// The work to do on a layer.
struct Attempt {
  const Method* method = &kRtnMethod;  ///< RTN's if another fell back to it
  bool use_moments = false;            ///< false without tokens
  bool quantize = true;                ///< false: the codes exist, only losses are computed
  double damp = 0;
  Precision loss = Precision::kNone;  ///< for AWQ, the precision of the search
  Precision rtn_loss = Precision::kNone;
  Precision energy = Precision::kNone;

  friend bool operator==(const Attempt&, const Attempt&) = default;
};

/// Layers that go through the kernels together. Pointers are per layer. `inputs` is the number of
/// different inputs: 1 if all layers have the same inputs and share the arrays that depend only on
/// them, 0 without second moments.
struct LayerGroup {
  int layers = 0;
  int inputs = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  QuantizerSpec spec;  ///< except for the options in `grids`
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

  // Scratch memory from TakeShared.
  Strided<double> diagonal;
  Strided<int32_t> position;
  Strided<double> partials;  ///< max(4 * kMostParts, cols) numbers

  int64_t size() const { return rows * cols; }
  /// The stride between the layers' arrays of `count` numbers that depend only on inputs.
  int64_t InputStride(int64_t count) const { return inputs == 1 ? 0 : count; }
  int64_t MostGroups() const;
  /// Whether the format of a layer stores its scales so.
  bool AnyScale(GroupScale kind) const;
  GridSource Source() const { return {.rows = rows, .cols = cols, .weight = weight}; }
  /// The weight with the columns of dead inputs set to zero.
  GridSource LiveSource() const;

  /// Allocates diagonal, position and partials.
  absl::Status TakeShared(Arena& arena);
};

GridShape GridOf(int64_t rows, int64_t cols, const QuantizerSpec& spec);

/// The number of a weight's scales, by method.
int64_t ScaleCount(int64_t rows, int64_t cols, const GridShape& grid, const Method& method);

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

/// Allocates `count` numbers for each of `layers` arrays.
template <typename T>
absl::Status TakeStrided(Arena& arena, int64_t layers, int64_t count, Strided<T>* array) {
  PTQWATCH_ASSIGN_OR_RETURN(array->first,
                            arena.TakeArray<T>(layers * count, "quantizing a weight"));
  array->stride = count;
  return absl::OkStatus();
}

/// The number of rows for which a product [rows, depth] x [depth, width] takes less than about 1 ms
/// on an H100, at 50 TFLOP/s. It does not depend on the other layers in the group, so neither do
/// the sums of our own kernels; on a GPU, cuBLAS's sums may.
int64_t RowsPerProduct(int64_t rows, int64_t width, int64_t depth);

/// The number of layers of this shape that may go together. Large layers fill a device alone, and
/// their joint products would take too long.
int64_t MostLayers(int64_t rows, int64_t cols);

/// The maximum of PartsOf. A part has up to four partial sums.
inline constexpr int64_t kMostParts = 256;

/// The number of blocks of threads that share a reduction over `size` numbers.
int64_t PartsOf(int64_t size);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LAYER_GROUP_H_
