#include "quantize/kernels/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quantize/kernels/scale_dtype.h"
#include "quantize/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/grid.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "quantize/kernels/grid_points-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::ScalableTag<float> kTag;

// min(w, 0) and max(w, 0) over finite weights.
void RangeOnTarget(const float* HWY_RESTRICT w, int64_t count, float* low, float* high) {
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  auto lo = hn::Zero(kTag);
  auto hi = hn::Zero(kTag);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto v = hn::LoadU(kTag, w + i);
    lo = hn::Min(lo, v);
    hi = hn::Max(hi, v);
  }
  *low = hn::GetLane(hn::MinOfLanes(kTag, lo));
  *high = hn::GetLane(hn::MaxOfLanes(kTag, hi));
  for (; i < count; ++i) {
    *low = std::min(*low, w[i]);
    *high = std::max(*high, w[i]);
  }
}

// `decoded` may be `w`.
template <class Points>
void RoundTo(const Points& points, const float* w, int64_t count, float scale, float zero,
             uint8_t* HWY_RESTRICT codes, float* decoded) {
  const hn::Rebind<uint8_t, decltype(kTag)> db;
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  const auto s = hn::Set(kTag, scale);
  const auto z = hn::Set(kTag, zero);
  typename Points::Codes code;
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto point = points.Round(hn::LoadU(kTag, w + i), s, z, &code);
    if (codes != nullptr) hn::StoreU(hn::DemoteTo(db, code), db, codes + i);
    if (decoded != nullptr) hn::StoreU(point, kTag, decoded + i);
  }
  if (i == count) return;
  float in[hn::MaxLanes(kTag)] = {};
  float out[hn::MaxLanes(kTag)];
  uint8_t out_codes[hn::MaxLanes(kTag)];
  std::copy(w + i, w + count, in);
  hn::StoreU(points.Round(hn::LoadU(kTag, in), s, z, &code), kTag, out);
  hn::StoreU(hn::DemoteTo(db, code), db, out_codes);
  if (codes != nullptr) std::copy_n(out_codes, count - i, codes + i);
  if (decoded != nullptr) std::copy_n(out, count - i, decoded + i);
}

void RoundOnTarget(const Grid& grid, int64_t row, const float* w, uint8_t* codes, float* decoded) {
  WithPoints(kTag, grid, [&](const auto& points) {
    for (int64_t g = 0; g < grid.groups; ++g) {
      const int64_t begin = grid.GroupBegin(g);
      const size_t at = static_cast<size_t>(row * grid.groups + g);
      RoundTo(points, w + begin, grid.GroupCount(g), grid.scale[at], grid.zero[at],
              codes == nullptr ? nullptr : codes + begin,
              decoded == nullptr ? nullptr : decoded + begin);
    }
  });
}

void AddErrorsOnTarget(const Grid& grid, const float* HWY_RESTRICT weights,
                       const float* HWY_RESTRICT decoded, ErrorSums* sums) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(dd));
  const FloatPoints<decltype(df)> points(grid);
  typename FloatPoints<decltype(df)>::Codes code;
  auto squares = hn::Zero(dd);
  auto errors = hn::Zero(dd);
  auto dead = hn::Zero(dd);
  auto ideal = hn::Zero(dd);
  const auto add = [&](const float* w_at, const float* q_at, float scale) HWY_ATTR {
    const auto w = hn::LoadU(df, w_at);
    const auto q = hn::LoadU(df, q_at);
    const auto is_dead = hn::Eq(q, hn::Zero(df));
    const auto rounded = points.Round(w, hn::Set(df, scale), hn::Zero(df), &code);
    const auto square = hn::PromoteTo(dd, w);
    const auto error = hn::PromoteTo(dd, hn::Sub(w, q));
    const auto lost = hn::PromoteTo(dd, hn::IfThenElseZero(is_dead, w));
    const auto noise = hn::PromoteTo(dd, hn::IfThenZeroElse(is_dead, hn::Sub(w, rounded)));
    squares = hn::MulAdd(square, square, squares);
    errors = hn::MulAdd(error, error, errors);
    dead = hn::MulAdd(lost, lost, dead);
    ideal = hn::MulAdd(noise, noise, ideal);
  };
  for (int64_t g = 0; g < grid.groups; ++g) {
    const float* w = weights + grid.GroupBegin(g);
    const float* q = decoded + grid.GroupBegin(g);
    const int64_t count = grid.GroupCount(g);
    float low = 0;
    float high = 0;
    RangeOnTarget(w, count, &low, &high);
    const float scale =
        std::max(std::max(-low, high) / grid.format->largest, std::numeric_limits<float>::min());
    int64_t i = 0;
    for (; i + n <= count; i += n) add(w + i, q + i, scale);
    if (i == count) continue;
    float last_w[hn::MaxLanes(dd)] = {};
    float last_q[hn::MaxLanes(dd)] = {};
    std::copy(w + i, w + count, last_w);
    std::copy(q + i, q + count, last_q);
    add(last_w, last_q, scale);
  }
  sums->weights += hn::GetLane(hn::SumOfLanes(dd, squares));
  sums->errors += hn::GetLane(hn::SumOfLanes(dd, errors));
  sums->dead += hn::GetLane(hn::SumOfLanes(dd, dead));
  sums->ideal += hn::GetLane(hn::SumOfLanes(dd, ideal));
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {

HWY_EXPORT(RangeOnTarget);
HWY_EXPORT(RoundOnTarget);
HWY_EXPORT(AddErrorsOnTarget);

}  // namespace

Grid EmptyGrid(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  Grid grid;
  grid.rows = rows;
  grid.cols = cols;
  grid.bits = spec.bits;
  grid.format = &NumbersOf(spec);
  grid.scale_rule = spec.scale_rule;
  grid.symmetric = spec.symmetric;
  grid.scale_dtype = spec.scale_dtype;
  grid.group_size = GroupSizeOf(spec, cols);
  grid.groups = (cols + grid.group_size - 1) / grid.group_size;
  grid.scale.resize(static_cast<size_t>(rows * grid.groups));
  grid.zero.resize(static_cast<size_t>(rows * grid.groups));
  return grid;
}

void SetTensorScale(float largest, Grid* grid) {
  if (grid->format->scale != GroupScale::kE4m3) return;
  const float top = kE4m3.largest * grid->format->largest;
  const float inverse = top / std::max(largest, std::numeric_limits<float>::min());
  grid->tensor_scale = std::isfinite(inverse) ? inverse : 1;
  grid->tensor_factor = std::isfinite(inverse) ? largest / top : 1;
}

namespace {

float FloatScale(float largest, const Grid& grid) {
  const NumberFormat& format = *grid.format;
  switch (format.scale) {
    case GroupScale::kE8m0:
      return PowerOfTwoScale(largest, format, grid.scale_rule);
    case GroupScale::kE4m3: {
      const float exact = largest / format.largest / grid.tensor_factor;
      return RoundToFormat(std::max(exact, kE4m3.SmallestNormal()), kE4m3) * grid.tensor_factor;
    }
    case GroupScale::kSpec:
      break;
  }
  const float exact = (largest > 0 ? largest : 1) / format.largest;
  return RoundScale(std::max(exact, std::numeric_limits<float>::denorm_min()), grid.scale_dtype);
}

}  // namespace

bool FitGroup(float low, float high, int64_t row, int64_t g, Grid* grid) {
  if (grid->format->is_float()) {
    const float scale = FloatScale(std::max(-low, high), *grid);
    grid->scale[static_cast<size_t>(row * grid->groups + g)] = scale;
    return std::isfinite(scale);
  }
  const float top = grid->max_code();
  if (grid->symmetric) {
    high = std::max(-low, high);
    low = -high;
  }
  if (!(high > low)) {
    low = -1;
    high = 1;
  }
  // With denormal weights the quotient may be 0.
  const float exact = std::max((high - low) / top, std::numeric_limits<float>::denorm_min());
  const float scale = RoundScale(exact, grid->scale_dtype);
  // Adding 0 turns -0 into 0. A scale rounded far from the exact one may put zero past the end.
  const float zero = grid->symmetric ? static_cast<float>(1 << (grid->bits - 1))
                                     : std::min(std::nearbyint(-low / scale) + 0.0f, top);
  grid->scale[static_cast<size_t>(row * grid->groups + g)] = scale;
  grid->zero[static_cast<size_t>(row * grid->groups + g)] = zero;
  return std::isfinite(scale);
}

Range RangeOf(const float* weights, int64_t count) {
  Range range;
  HWY_DYNAMIC_DISPATCH(RangeOnTarget)(weights, count, &range.low, &range.high);
  return range;
}

bool FitRow(const float* weights, int64_t row, Grid* grid) {
  bool finite = true;
  for (int64_t g = 0; g < grid->groups; ++g) {
    const Range range = RangeOf(weights + grid->GroupBegin(g), grid->GroupCount(g));
    finite = FitGroup(range.low, range.high, row, g, grid) && finite;
  }
  return finite;
}

void RoundRow(const Grid& grid, int64_t row, const float* weights, uint8_t* codes, float* decoded) {
  HWY_DYNAMIC_DISPATCH(RoundOnTarget)(grid, row, weights, codes, decoded);
}

void AddErrors(const Grid& grid, const float* weights, const float* decoded, ErrorSums* sums) {
  HWY_DYNAMIC_DISPATCH(AddErrorsOnTarget)(grid, weights, decoded, sums);
}

void DecodeRow(const Grid& grid, int64_t row, const uint8_t* codes, float* decoded) {
  float levels[256];
  const bool is_float = grid.format->is_float();
  for (int code = 0; is_float && code < 1 << grid.bits; ++code) {
    levels[code] = grid.format->Level(static_cast<uint8_t>(code));
  }
  for (int64_t g = 0; g < grid.groups; ++g) {
    const size_t at = static_cast<size_t>(row * grid.groups + g);
    const float scale = grid.scale[at];
    const float zero = grid.zero[at];
    const int64_t begin = grid.GroupBegin(g);
    for (int64_t i = begin; i < begin + grid.GroupCount(g); ++i) {
      decoded[i] = scale * (is_float ? levels[codes[i]] : static_cast<float>(codes[i]) - zero);
    }
  }
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
