#ifndef PTQWATCH_CUDA_KERNELS_FLOAT_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_FLOAT_KERNELS_H_

#include <cstdint>

#include "cuda/kernels/block_sum.h"
#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// The largest magnitude of a weight, for formats with a scale for the tensor: partial maxima over
/// rows. Cost: one read of the weight.
struct FindLargest {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  struct Shared {
    float largest[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  int64_t parts = 0;              ///< blocks per layer
  Strided<double> partials = {};  ///< [parts]

  int64_t Blocks() const { return layers * parts; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / parts;
    const int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      const int64_t each = CeilDiv(source.rows, parts);
      const int64_t end = AtMost(source.rows, (part + 1) * each);
      float largest = 0;
      for (int64_t row = part * each; row < end; ++row) {
        largest = Larger(largest, source.Largest(layer, row, at.thread, source.cols, kThreads));
      }
      shared.largest[at.thread] = largest;
    } else if (at.thread == 0) {
      float largest = 0;
      for (int i = 0; i < kThreads; ++i) largest = Larger(largest, shared.largest[i]);
      partials.at(layer)[part] = static_cast<double>(largest);
    }
  }
};

/// The sums of AddErrors in quantize/kernels/grid.h for layers with power-of-two scales, zeros for
/// others: partial sums. Cost: two reads of the weight, of which the second finds it in the cache.
struct SumErrorParts {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 3;
  static constexpr int kSums = 4;
  struct Shared {
    BlockSum<kThreads> sum[kSums];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  Grids grids = {};
  PerLayer<const float> scale = {};
  int64_t parts = 0;  ///< blocks per layer
  /// [parts, kSums]: of w^2, of squared errors, of these where the rounded weight is 0, and of the
  /// others if each scale were max|w| / the format's largest number.
  Strided<double> partials = {};

  int64_t Blocks() const { return layers * parts; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / parts;
    const int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      double sums[kSums] = {};
      const GridShape& grid = grids.at[layer];
      const bool wanted = grid.format.scale == GroupScale::kE8m0;
      const int64_t items = wanted ? source.rows * grid.groups : 0;
      const int64_t each = CeilDiv(items, parts);
      const int64_t end = AtMost(items, (part + 1) * each);
      for (int64_t item = part * each + at.thread; item < end; item += kThreads) {
        AddGroup(layer, item, grid, sums);
      }
      for (int i = 0; i < kSums; ++i) shared.sum[i].value[at.thread] = sums[i];
    } else if constexpr (kPhase == 1) {
      for (int i = 0; i < kSums; ++i) shared.sum[i].AddParts(at.thread);
    } else if (at.thread < kSums) {
      partials.at(layer)[part * kSums + at.thread] = shared.sum[at.thread].Total();
    }
  }

 private:
  PTQWATCH_HOST_DEVICE void AddGroup(int64_t layer, int64_t item, const GridShape& grid,
                                     double* sums) const {
    const int64_t row = item / grid.groups;
    const int64_t begin = item % grid.groups * grid.group_size;
    const int64_t end = AtMost(source.cols, begin + grid.group_size);
    const FloatPoints points(grid);
    const float used = scale.at[layer][item];
    const float ideal =
        Larger(source.Largest(layer, row, begin, end, 1) / grid.format.largest, 0x1p-126f);
    uint8_t code;
    for (int64_t c = begin; c < end; ++c) {
      const float w = source.Number(layer, row, c);
      const float rounded = points.Round(w, used, 0, &code);
      const double weight = static_cast<double>(w);
      const double error = static_cast<double>(w - rounded);
      sums[0] += weight * weight;
      sums[1] += error * error;
      if (rounded == 0) {
        sums[2] += weight * weight;
      } else {
        const double noise = static_cast<double>(w - points.Round(w, ideal, 0, &code));
        sums[3] += noise * noise;
      }
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_FLOAT_KERNELS_H_
