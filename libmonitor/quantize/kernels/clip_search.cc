#include "quantize/kernels/clip_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "quantize/kernels/aligned_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/clip_search.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/kernels/grid_points-inl.h"
#include "quantize/kernels/micro_kernel-inl.h"

#ifndef PTQWATCH_QUANTIZE_KERNELS_CLIP_SEARCH_ONCE_
#define PTQWATCH_QUANTIZE_KERNELS_CLIP_SEARCH_ONCE_
namespace ptqwatch::internal {
namespace {

// One group of inputs in `width` rows, transposed. Padding rows are zero.
struct Tile {
  Tile(int64_t lanes, int64_t max_inputs)
      : width(lanes),
        plain(MakeAligned<float>(max_inputs * width)),
        scaled(MakeAligned<float>(max_inputs * width)),
        scale(MakeAligned<float>(width)),
        zero(MakeAligned<float>(width)),
        low(static_cast<size_t>(width)),
        high(static_cast<size_t>(width)) {}

  // Loads inputs [begin, begin + inputs) of rows [first_row, first_row + width). A null
  // `channel_scale` counts as 1.
  void Load(MatrixView weight, const float* channel_scale, int64_t first_row, int64_t begin,
            int64_t inputs) {
    first = first_row;
    rows = std::min(width, weight.rows - first_row);
    count = inputs;
    std::fill_n(plain.get(), count * width, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      const float* w = weight.data + (first + r) * weight.cols + begin;
      for (int64_t k = 0; k < count; ++k) plain[static_cast<size_t>(k * width + r)] = w[k];
    }
    std::fill(low.begin(), low.end(), 0.0f);
    std::fill(high.begin(), high.end(), 0.0f);
    for (int64_t k = 0; k < count; ++k) {
      const float s = channel_scale == nullptr ? 1.0f : channel_scale[begin + k];
      const float* from = plain.get() + k * width;
      float* to = scaled.get() + k * width;
      for (int64_t r = 0; r < width; ++r) {
        to[r] = from[r] * s;
        low[static_cast<size_t>(r)] = std::min(low[static_cast<size_t>(r)], to[r]);
        high[static_cast<size_t>(r)] = std::max(high[static_cast<size_t>(r)], to[r]);
      }
    }
  }

  int64_t width;
  int64_t first = 0;
  int64_t rows = 0;  // rows of the weight; the rest of `width` is padding
  int64_t count = 0;
  AlignedBuffer<float> plain;   // [count][width]
  AlignedBuffer<float> scaled;  // [count][width], times the channel scale
  AlignedBuffer<float> scale;   // [width], the scales of the candidate's grids
  AlignedBuffer<float> zero;
  std::vector<float> low;
  std::vector<float> high;
};

// The candidate ranges: candidate k covers 1 - k / divisor of the whole range.
struct Shrink {
  int steps;
  double divisor;
  bool both_ends;  // scales both ends; otherwise cuts at that share of max|w|

  bool Fit(const Tile& tile, int64_t lane, int64_t g, int step, Grid* grid) const {
    const float factor = static_cast<float>(1.0 - step / divisor);
    const float low = tile.low[static_cast<size_t>(lane)];
    const float high = tile.high[static_cast<size_t>(lane)];
    if (both_ends) return FitGroup(factor * low, factor * high, tile.first + lane, g, grid);
    const float limit = factor * std::max(-low, high);
    return FitGroup(std::max(low, -limit), std::min(high, limit), tile.first + lane, g, grid);
  }
};
constexpr Shrink kImportanceShrink{.steps = 80, .divisor = 100, .both_ends = true};
constexpr Shrink kOutputShrink{.steps = 10, .divisor = 20, .both_ends = false};

}  // namespace
}  // namespace ptqwatch::internal
#endif

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {

// Both criteria compute the errors of a tile's candidate grids, row by row. If an error reaches
// `smallest`, its sum may be left incomplete.

// The sum of importance times squares.
class ByImportance {
 public:
  explicit ByImportance(const double* importance) : importance_(importance) {}

  absl::Status Begin(int64_t begin, int64_t /*count*/, const ExecutionContext& context) {
    group_ = importance_ + begin;
    return context.Checkpoint();
  }

  template <class Points>
  absl::Status Errors(const Tile& tile, const Points& points, const double* HWY_RESTRICT smallest,
                      double* HWY_RESTRICT errors, const ExecutionContext& context) const {
    const Tag<double> dd;
    const hn::Rebind<float, decltype(dd)> df;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    typename Points::Codes code;
    constexpr int64_t kPiece = 16;
    for (int64_t v = 0; v < tile.width; v += n) {
      const auto scale = hn::Load(df, tile.scale.get() + v);
      const auto zero = hn::Load(df, tile.zero.get() + v);
      const auto limit = hn::LoadU(dd, smallest + v);
      const float* HWY_RESTRICT weights = tile.scaled.get() + v;
      auto sum = hn::Zero(dd);
      for (int64_t k0 = 0; k0 < tile.count && !hn::AllTrue(dd, hn::Ge(sum, limit)); k0 += kPiece) {
        for (int64_t k = k0; k < std::min(tile.count, k0 + kPiece); ++k) {
          const auto w = hn::Load(df, weights + k * tile.width);
          const auto e = hn::PromoteTo(dd, hn::Sub(w, points.Round(w, scale, zero, &code)));
          // Not fused, so that every target finds the same minimum.
          sum = hn::Add(sum, hn::Mul(hn::Mul(e, e), hn::Set(dd, group_[k])));
        }
      }
      hn::Store(sum, dd, errors + v);
    }
    return context.Checkpoint();
  }

 private:
  const double* importance_;
  const double* group_ = nullptr;
};

// The quadratic form with the group's diagonal block.
class ByOutput {
 public:
  ByOutput(const double* sum, const float* channel_scale, int64_t cols, int64_t max_inputs)
      : sum_(sum),
        channel_scale_(channel_scale),
        cols_(cols),
        packed_(MakeAligned<double>(Quad((max_inputs + 3) / 4))),
        error_(MakeAligned<double>(RoundUp(max_inputs, 4) * PanelWidth(Tag<double>()))),
        product_(MakeAligned<double>(4 * PanelWidth(Tag<double>()))) {}

  // Packs the upper triangle for the micro kernel, with doubled off-diagonal entries: quad q, of
  // four columns, is [4 q + 4][4].
  absl::Status Begin(int64_t begin, int64_t count, const ExecutionContext& context) {
    begin_ = begin;
    for (int64_t q = 0; q < (count + 3) / 4; ++q) {
      double* out = packed_.get() + Quad(q);
      for (int64_t k = 0; k < 4 * q + 4; ++k) {
        for (int64_t c = 0; c < 4; ++c) {
          const int64_t i = 4 * q + c;
          const bool inside = k <= i && i < count;
          out[4 * k + c] = inside ? (k == i ? 1 : 2) * sum_[(begin + k) * cols_ + begin + i] : 0.0;
        }
      }
      if (q % 16 == 15) PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    return context.Checkpoint();
  }

  template <class Points>
  absl::Status Errors(const Tile& tile, const Points& points, const double* /*smallest*/,
                      double* HWY_RESTRICT errors, const ExecutionContext& context) const {
    const Tag<double> dd;
    const hn::Rebind<float, decltype(dd)> df;
    const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
    const int64_t width = tile.width;
    typename Points::Codes code;
    const int64_t quads = (tile.count + 3) / 4;
    for (int64_t k = 0; k < tile.count; ++k) {
      const auto s = hn::Set(df, channel_scale_[begin_ + k]);
      for (int64_t v = 0; v < width; v += n) {
        const auto q = points.Round(hn::Load(df, tile.scaled.get() + k * width + v),
                                    hn::Load(df, tile.scale.get() + v),
                                    hn::Load(df, tile.zero.get() + v), &code);
        const auto w = hn::Load(df, tile.plain.get() + k * width + v);
        hn::Store(hn::PromoteTo(dd, hn::Sub(w, hn::Div(q, s))), dd, error_.get() + k * width + v);
      }
    }
    std::fill(error_.get() + tile.count * width, error_.get() + 4 * quads * width, 0.0);
    std::fill_n(errors, width, 0.0);
    for (int64_t q = 0; q < quads; ++q) {
      std::fill_n(product_.get(), 4 * width, 0.0);
      MulAddTile(dd, 4 * q + 4, packed_.get() + Quad(q), error_.get(), product_.get());
      for (int64_t c = 0; c < 4; ++c) {
        const double* e = error_.get() + (4 * q + c) * width;
        const double* y = product_.get() + c * width;
        for (int64_t v = 0; v < width; v += n) {
          hn::Store(hn::MulAdd(hn::Load(dd, e + v), hn::Load(dd, y + v), hn::Load(dd, errors + v)),
                    dd, errors + v);
        }
      }
      if (q % 64 == 63) PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
    return context.Checkpoint();
  }

 private:
  static int64_t Quad(int64_t quad) { return 8 * quad * (quad + 1); }

  const double* sum_;
  const float* channel_scale_;
  int64_t cols_;
  int64_t begin_ = 0;
  AlignedBuffer<double> packed_;
  AlignedBuffer<double> error_;    // [inputs, padded to a multiple of 4][width]
  AlignedBuffer<double> product_;  // [4][width]
};

template <class Criterion>
absl::StatusOr<ClipResult> Search(MatrixView weight, const float* channel_scale,
                                  const Shrink& shrink, Criterion& criterion, Grid* grid,
                                  const ExecutionContext& context) {
  const int64_t width = PanelWidth(Tag<double>());
  Tile tile(width, grid->group_size);
  const AlignedBuffer<double> errors = MakeAligned<double>(width);
  std::vector<double> smallest(static_cast<size_t>(width));
  std::vector<int> best(static_cast<size_t>(width));
  ClipResult result;
  for (int64_t g = 0; g < grid->groups; ++g) {
    const int64_t begin = grid->GroupBegin(g);
    const int64_t count = grid->GroupCount(g);
    PTQWATCH_RETURN_IF_ERROR(criterion.Begin(begin, count, context));
    for (int64_t first = 0; first < weight.rows; first += width) {
      tile.Load(weight, channel_scale, first, begin, count);
      std::fill(smallest.begin(), smallest.end(), std::numeric_limits<double>::infinity());
      std::fill(best.begin(), best.end(), 0);
      std::fill_n(tile.scale.get(), width, 1.0f);
      std::fill_n(tile.zero.get(), width, 0.0f);
      for (int step = 0; step < shrink.steps; ++step) {
        for (int64_t r = 0; r < tile.rows; ++r) {
          const bool fits = shrink.Fit(tile, r, g, step, grid);
          if (step == 0 && !fits) {
            result.fits = false;
            return result;
          }
          const size_t at = static_cast<size_t>((first + r) * grid->groups + g);
          tile.scale[static_cast<size_t>(r)] = grid->scale[at];
          tile.zero[static_cast<size_t>(r)] = grid->zero[at];
        }
        PTQWATCH_RETURN_IF_ERROR(
            WithPoints(hn::Rebind<float, Tag<double>>(), *grid, [&](const auto& points) {
              return criterion.Errors(tile, points, smallest.data(), errors.get(), context);
            }));
        for (size_t r = 0; r < smallest.size(); ++r) {
          if (errors[r] < smallest[r]) {
            smallest[r] = errors[r];
            best[r] = step;
          }
        }
      }
      for (int64_t r = 0; r < tile.rows; ++r) {
        const int step = best[static_cast<size_t>(r)];
        shrink.Fit(tile, r, g, step, grid);
        result.groups += step != 0;
      }
    }
  }
  return result;
}

absl::StatusOr<ClipResult> FitByImportanceOnTarget(MatrixView weight, const double* importance,
                                                   Grid* grid, const ExecutionContext& context) {
  ByImportance criterion(importance);
  return Search(weight, nullptr, kImportanceShrink, criterion, grid, context);
}

absl::StatusOr<ClipResult> FitByOutputOnTarget(MatrixView weight, const float* channel_scale,
                                               const double* sum, Grid* grid,
                                               const ExecutionContext& context) {
  ByOutput criterion(sum, channel_scale, weight.cols, grid->group_size);
  return Search(weight, channel_scale, kOutputShrink, criterion, grid, context);
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {
HWY_EXPORT(FitByImportanceOnTarget);
HWY_EXPORT(FitByOutputOnTarget);
}  // namespace

absl::StatusOr<ClipResult> FitClippedByImportance(MatrixView weight, const double* importance,
                                                  Grid* grid, const ExecutionContext& context) {
  return HWY_DYNAMIC_DISPATCH(FitByImportanceOnTarget)(weight, importance, grid, context);
}

absl::StatusOr<ClipResult> FitClippedByOutput(MatrixView weight, const float* channel_scale,
                                              const double* sum, Grid* grid,
                                              const ExecutionContext& context) {
  return HWY_DYNAMIC_DISPATCH(FitByOutputOnTarget)(weight, channel_scale, sum, grid, context);
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
