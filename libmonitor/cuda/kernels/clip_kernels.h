#ifndef PTQWATCH_CUDA_KERNELS_CLIP_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_CLIP_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// Fits the grid of every group to the share of its range with the smallest error, bit for bit as
/// FitClippedByImportance in quantize/kernels/clip_search.h. 32 threads per group share the 80
/// candidates. Cost: 80 * 4 operations per weight; by arithmetic 1 ms for 16 M weights on an H100.
/// A launch takes a slice of the rows that begins at a multiple of kGroups. The lowest code is 0:
/// with another number in its inner loop the kernel would spill registers.
struct FitClipped {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 5;
  static constexpr int kLanes = 32;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kSteps = 80;
  struct Shared {
    float low[kThreads];
    float high[kThreads];
    double error[kThreads];
    int step[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  Grids grids = {};
  int64_t most_groups = 0;  ///< the maximum over the layers
  int64_t first_row = 0;
  int64_t row_count = 0;
  Strided<const double> importance = {};  ///< [cols]; 1 if null
  PerLayer<const double> numbers = {};    ///< for formats with a scale for the tensor
  PerLayer<float> scale = {};
  PerLayer<float> zero = {};
  /// [Parts(rows, most_groups)]: number of groups whose grid covers less than their range.
  Strided<double> clipped = {};

  static PTQWATCH_HOST_DEVICE int64_t Parts(int64_t rows, int64_t groups) {
    return CeilDiv(rows * groups, kGroups);
  }
  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const { return Parts(row_count, most_groups); }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t block = at.block % BlocksPerLayer();
    const GridShape& grid = grids.at[layer];
    const int64_t items = row_count * grid.groups;
    if constexpr (kPhase == 4) {
      if (at.thread == 0) {
        clipped.at(layer)[Parts(first_row, most_groups) + block] =
            CountClipped(items, block, shared);
      }
      return;
    }
    if (block * kGroups + at.thread / kLanes >= items) return;
    const int64_t item = first_row * grid.groups + block * kGroups + at.thread / kLanes;
    const int base = at.thread / kLanes * kLanes;
    const int64_t row = item / grid.groups;
    const int64_t begin = item % grid.groups * grid.group_size;
    const int64_t end = AtMost(source.cols, begin + grid.group_size);
    const float tensor_factor = TensorFactorOf(grid, numbers.at[layer]);
    if constexpr (kPhase == 0) {
      source.Range(layer, row, begin + at.thread - base, end, kLanes, &shared.low[at.thread],
                   &shared.high[at.thread]);
    } else if constexpr (kPhase == 1) {
      if (at.thread == base) Widest(kLanes, &shared.low[base], &shared.high[base]);
    } else if constexpr (kPhase == 2) {
      const Candidates candidates{.layer = layer,
                                  .row = row,
                                  .begin = begin,
                                  .end = end,
                                  .low = shared.low[base],
                                  .high = shared.high[base],
                                  .tensor_factor = tensor_factor};
      const Found found =
          grid.format.is_float()
              ? Search(FloatPoints(grid), grid, candidates, at.thread - base)
              : Search(IntegerPoints(0, grid.Top()), grid, candidates, at.thread - base);
      shared.error[at.thread] = found.error;
      shared.step[at.thread] = found.step;
    } else if (at.thread == base) {
      const int step = Best(base, shared);
      FitStep(grid, tensor_factor, step, shared.low[base], shared.high[base],
              &scale.at[layer][item], &zero.at[layer][item]);
      shared.step[base] = step;
      // Clipping cannot help a range that overflows.
      float whole = 0;
      float unused = 0;
      FitStep(grid, tensor_factor, 0, shared.low[base], shared.high[base], &whole, &unused);
      if (!HoldsItsNumbers(grid, whole)) scale.at[layer][item] = FloatFromBits(0x7f800000u);
    }
  }

 private:
  // A group of a row, and its range.
  struct Candidates {
    int64_t layer;
    int64_t row;
    int64_t begin;
    int64_t end;
    float low;
    float high;
    float tensor_factor;
  };
  struct Found {
    double error;
    int step;
  };

  PTQWATCH_HOST_DEVICE static void FitStep(const GridShape& grid, float tensor_factor, int step,
                                           float low, float high, float* scale, float* zero) {
    const float factor = static_cast<float>(1.0 - step / 100.0);
    // A least scale of the grid's own would be one number too many for the registers.
    FitGrid(grid, tensor_factor, FloatFromBits(1), factor * low, factor * high, scale, zero);
  }

  // The best of every kLanes-th candidate from `first` on.
  template <class Points>
  PTQWATCH_HOST_DEVICE Found Search(const Points& points, const GridShape& grid,
                                    const Candidates& candidates, int first) const {
    double least = HUGE_VAL;
    int best = 0;
    for (int step = first; step < kSteps; step += kLanes) {
      const double error = Error(points, grid, candidates, step);
      if (error < least) {
        least = error;
        best = step;
      }
    }
    return {least, best};
  }

  template <class Points>
  PTQWATCH_HOST_DEVICE double Error(const Points& points, const GridShape& grid,
                                    const Candidates& group, int step) const {
    float s = 0;
    float z = 0;
    FitStep(grid, group.tensor_factor, step, group.low, group.high, &s, &z);
    uint8_t code;
    double sum = 0;
    for (int64_t c = group.begin; c < group.end; ++c) {
      const float w = source.Number(group.layer, group.row, c);
      const double e = static_cast<double>(w - points.Round(w, s, z, &code));
      sum += e * e * (importance.first == nullptr ? 1.0 : importance.at(group.layer)[c]);
    }
    return sum;
  }

  // The first of equal candidates wins.
  PTQWATCH_HOST_DEVICE static int Best(int base, const Shared& shared) {
    double least = HUGE_VAL;
    int best = 0;
    for (int i = base; i < base + kLanes; ++i) {
      const bool first = shared.error[i] == least && shared.step[i] < best;
      if (shared.error[i] < least || first) {
        least = shared.error[i];
        best = shared.step[i];
      }
    }
    return best;
  }

  PTQWATCH_HOST_DEVICE static double CountClipped(int64_t items, int64_t block,
                                                  const Shared& shared) {
    double count = 0;
    for (int i = 0; i < kGroups; ++i) {
      if (block * kGroups + i < items && shared.step[i * kLanes] != 0) ++count;
    }
    return count;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_CLIP_KERNELS_H_
