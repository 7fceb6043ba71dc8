#ifndef PTQWATCH_QUANTIZE_KERNELS_GRID_H_
#define PTQWATCH_QUANTIZE_KERNELS_GRID_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "quantize/kernels/clip_rules.h"
#include "quantize/kernels/number_format.h"

namespace ptqwatch::internal {

/// The static grids of one weight: a scale and a zero for each row and group of inputs.
///
/// With lo = min(w, 0) and hi = max(w, 0) over a group, scale = (hi - lo) / (2^bits - 1).
/// Asymmetric grids have zero = round(-lo / scale); symmetric ones first widen to +-max(-lo, hi)
/// and have zero = 2^(bits-1). A narrow range lacks the code 0, so it divides by 2^bits - 2. A
/// group of zeros has lo = -1, hi = 1. All in float32. The scale is at least least_scale, and is
/// rounded to its dtype before anything is computed from it.
///
/// With a floating-point format, scale = max(-lo, hi) / largest number, as the format stores
/// scales, and zero = 0.
struct Grid {
  int64_t cols = 0;
  int64_t group_size = 0;  ///< inputs per group, at least 1; a row's last group may be shorter
  int64_t groups = 0;      ///< per row
  int bits = 0;
  const NumberFormat* format = nullptr;
  ScaleRule scale_rule = ScaleRule::kEven;
  bool symmetric = true;
  bool narrow_range = false;
  const ClipRule* clip = nullptr;  ///< a rule with a limit; null: FitRow covers the whole range
  double clip_value = 0;
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;  ///< float32 if RoundRowBeforeScale rounds
  float least_scale = 0;                          ///< of an integer grid, before it is rounded
  std::vector<float> scale;                       ///< [rows, groups]
  std::vector<float> zero;                        ///< [rows, groups]
  std::vector<float> limit;  ///< [rows, groups]: the range is +-limit. For RoundRowBeforeScale
  /// NVFP4: a scale is an E4M3 number times this. Set by SetTensorScale.
  float tensor_factor = 0;
  float tensor_scale = 0;  ///< NVFP4: the inverse, as QuantizedWeight has it

  float min_code() const { return narrow_range ? 1.0f : 0.0f; }
  float max_code() const { return static_cast<float>((1 << bits) - 1); }
  int64_t GroupBegin(int64_t g) const { return g * group_size; }
  int64_t GroupCount(int64_t g) const { return std::min(group_size, cols - g * group_size); }
};

/// The smallest scale of an integer grid: min_scale, and never 0.
float LeastScale(const QuantizerSpec& spec);

/// A grid without its numbers. `spec` must be valid and the shape not empty.
Grid EmptyGrid(int64_t rows, int64_t cols, const QuantizerSpec& spec);

/// Sets NVFP4's tensor factor to `largest` / (448 * 6), before any group is fitted. `largest` is
/// the weight's max|w|; if it is so small that the inverse overflows, the factor is 1.
void SetTensorScale(float largest, Grid* grid);

/// min(w, 0) and max(w, 0) over `count` weights; both infinite if a weight is not finite.
struct Range {
  float low = 0;
  float high = 0;
};
Range RangeOf(const float* weights, int64_t count);
/// max|w| over `count` weights, or infinity if a weight is not finite.
float LargestOf(const float* weights, int64_t count);

/// Sets one group for weights in [low, high], low <= 0 <= high. Returns false if an end is
/// infinite, the scale overflows its dtype, or a number of the grid overflows float32; the scale is
/// then of no use.
bool FitGroup(float low, float high, int64_t row, int64_t g, Grid* grid);

/// Sets row `row`. Returns false if a weight is not finite or a scale overflows its dtype. If
/// `clipped` is not null, adds the number of groups whose grid covers less than their range.
bool FitRow(const float* weights, int64_t row, Grid* grid, int64_t* clipped = nullptr);

/// Round to nearest: for integers, code = clamp(round_half_even(w / scale) + zero, min_code,
/// max_code), decoded = scale * (code - zero). `codes` and `decoded` hold `cols` entries; either
/// may be null, and `decoded` may be `weights`. An infinite w gives the code at its end, NaN gives
/// min_code, or a zero of either sign for floating-point codes.
void RoundRow(const Grid& grid, int64_t row, const float* weights, uint8_t* codes, float* decoded);

/// QuantizerSpec::round_scale_last: clips the weights of a fitted row to the ranges of its groups,
/// rounds them as RoundRow, then rounds the scales to `scale_dtype` and decodes with these. Returns
/// false if a scale overflows. `codes` and `decoded` hold `cols` entries.
bool RoundRowBeforeScale(ScaleDtype scale_dtype, int64_t row, const float* weights, Grid* grid,
                         uint8_t* codes, float* decoded);

/// Sums over weights rounded by RoundRow to a grid with power-of-two scales.
struct ErrorSums {
  double weights = 0;  ///< w^2
  double dead = 0;     ///< w^2 where decoded is 0
  double errors = 0;   ///< (w - decoded)^2 elsewhere
  /// The same elsewhere, if each scale were max|w| of its group / the format's largest number.
  double ideal = 0;
};
/// Adds row `row`. Relative error about 1e-7. Cost: a rounding.
void AddErrors(const Grid& grid, int64_t row, const float* weights, const float* decoded,
               ErrorSums* sums);

/// decoded = scale * (code - zero), or scale * number for floating-point codes.
void DecodeRow(const Grid& grid, int64_t row, const uint8_t* codes, float* decoded);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_KERNELS_GRID_H_
