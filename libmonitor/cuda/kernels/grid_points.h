#ifndef PTQWATCH_CUDA_KERNELS_GRID_POINTS_H_
#define PTQWATCH_CUDA_KERNELS_GRID_POINTS_H_

#include <cstdint>

#include "cuda/kernels/kernel.h"
#include "cuda/kernels/numbers.h"
#include "cuda/kernels/scalars.h"
#include "quantize/kernels/number_format.h"

namespace ptqwatch::internal {

/// The grids of a weight as in quantize/kernels/grid.h: scale and zero are [rows, groups].
struct GridShape {
  int64_t group_size = 0;
  int64_t groups = 0;
  int64_t group_rows = 1;  ///< rows that share a scale
  int bits = 4;
  bool symmetric = true;
  int lowest = 0;  ///< code: 1 in a narrow range
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;
  float least_scale = 0;  ///< of an integer grid, before it is rounded
  NumberFormat format = {};
  ScaleRule scale_rule = ScaleRule::kEven;

  /// Divides in 32 bits: devices have no 64-bit division.
  PTQWATCH_HOST_DEVICE int64_t GroupOf(int64_t col) const {
    return static_cast<uint32_t>(col) / static_cast<uint32_t>(group_size);
  }
  PTQWATCH_HOST_DEVICE float Bottom() const { return static_cast<float>(lowest); }
  PTQWATCH_HOST_DEVICE float Top() const { return static_cast<float>((1 << bits) - 1); }
};

/// One grid shape per layer.
struct Grids {
  GridShape at[kMaxBatch] = {};
};

/// Points of a grid, as in quantize/kernels/grid_points-inl.h. Round returns the nearest point,
/// half to even, and stores its code; Decode returns the point of a code.

/// Points scale * (code - zero).
class IntegerPoints {
 public:
  PTQWATCH_HOST_DEVICE explicit IntegerPoints(const GridShape& grid)
      : IntegerPoints(grid.Bottom(), grid.Top()) {}
  PTQWATCH_HOST_DEVICE IntegerPoints(float bottom, float top) : bottom_(bottom), top_(top) {}

  PTQWATCH_HOST_DEVICE float Round(float w, float scale, float zero, uint8_t* code) const {
    const float nearest = CodeOf(w, scale, zero, bottom_, top_);
    *code = static_cast<uint8_t>(nearest);
    return scale * (nearest - zero);
  }
  PTQWATCH_HOST_DEVICE float Decode(uint8_t code, float scale, float zero) const {
    return scale * (static_cast<float>(code) - zero);
  }

 private:
  float bottom_;
  float top_;
};

/// Points scale * number, for numbers of a floating-point format. Ignores the zero.
class FloatPoints {
 public:
  PTQWATCH_HOST_DEVICE explicit FloatPoints(const GridShape& grid) : format_(grid.format) {}

  PTQWATCH_HOST_DEVICE float Round(float w, float scale, float /*zero*/, uint8_t* code) const {
    const FormatNumber nearest = NearestNumber(w / scale, format_);
    *code = nearest.code;
    return scale * nearest.value;
  }
  PTQWATCH_HOST_DEVICE float Decode(uint8_t code, float scale, float /*zero*/) const {
    return scale * format_.Level(code);
  }

 private:
  NumberFormat format_;
};

/// The factor for the tensor, from Number::kLargestWeight; 0 if the format has none.
PTQWATCH_HOST_DEVICE inline float TensorFactorOf(const GridShape& grid, const double* numbers) {
  if (grid.format.scale != GroupScale::kE4m3) return 0;
  return TensorScaleOf(static_cast<float>(numbers[kLargestWeight]), grid.format).factor;
}

/// As FitGroup in quantize/kernels/grid.h, but for numbers of a floating-point grid that overflow
/// (HoldsItsNumbers), and with another least scale of integers, above 0. Another overflow shows as
/// an infinite scale.
PTQWATCH_HOST_DEVICE inline void FitGrid(const GridShape& grid, float tensor_factor,
                                         float least_scale, float low, float high, float* scale,
                                         float* zero) {
  if (grid.format.is_float()) {
    const float exact =
        ScaleInFormat(Larger(-low, high), grid.format, grid.scale_rule, tensor_factor);
    *scale = grid.format.scale == GroupScale::kSpec ? RoundToDtype(exact, grid.scale_dtype) : exact;
    *zero = 0;
    return;
  }
  if (grid.symmetric) {
    high = -low > high ? -low : high;
    low = -high;
  }
  if (!(high > low)) {
    low = -1;
    high = 1;
  }
  float exact = (high - low) / static_cast<float>((1 << grid.bits) - 1 - grid.lowest);
  if (!(exact > least_scale)) exact = least_scale;
  const float rounded = RoundToDtype(exact, grid.scale_dtype);
  const float shift = rintf(-low / rounded) + 0.0f;
  *scale = rounded;
  *zero = grid.symmetric ? static_cast<float>(1 << (grid.bits - 1))
                         : (shift < grid.Top() ? shift : grid.Top());
}

/// Whether float32 holds the scale and the largest number of a fitted grid.
PTQWATCH_HOST_DEVICE inline bool HoldsItsNumbers(const GridShape& grid, float scale) {
  return IsFiniteBits(grid.format.is_float() ? scale * grid.format.largest : scale);
}

/// As FitGroup in quantize/kernels/grid.h. An overflow shows as an infinite scale.
PTQWATCH_HOST_DEVICE inline void FitWholeGrid(const GridShape& grid, float tensor_factor, float low,
                                              float high, float* scale, float* zero) {
  FitGrid(grid, tensor_factor, grid.least_scale, low, high, scale, zero);
  if (!HoldsItsNumbers(grid, *scale)) *scale = FloatFromBits(0x7f800000u);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_GRID_POINTS_H_
