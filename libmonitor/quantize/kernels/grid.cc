#include "quantize/kernels/grid.h"

#include <algorithm>
#include <bit>
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

// max|w|, or infinity if a weight is not finite. Compares bits, which are in the order of the
// magnitudes, with those of NaN last.
float LargestOnTarget(const float* HWY_RESTRICT w, int64_t count) {
  const hn::RebindToSigned<decltype(kTag)> di;
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  const auto magnitude = [&](const float* at)
                             HWY_ATTR { return hn::BitCast(di, hn::Abs(hn::LoadU(kTag, at))); };
  auto most = hn::Zero(di);
  auto more = hn::Zero(di);
  int64_t i = 0;
  for (; i + 2 * n <= count; i += 2 * n) {
    most = hn::Max(most, magnitude(w + i));
    more = hn::Max(more, magnitude(w + i + n));
  }
  most = hn::Max(most, more);
  if (i + n <= count) {
    most = hn::Max(most, magnitude(w + i));
    i += n;
  }
  int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
  for (; i < count; ++i) bits = std::max(bits, std::bit_cast<int32_t>(std::abs(w[i])));
  const float largest = std::bit_cast<float>(bits);
  return largest <= std::numeric_limits<float>::max() ? largest
                                                      : std::numeric_limits<float>::infinity();
}

Range RangeOnTarget(const float* HWY_RESTRICT w, int64_t count) {
  const float largest = LargestOnTarget(w, count);
  if (largest == std::numeric_limits<float>::infinity()) return {.low = -largest, .high = largest};
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  auto lo = hn::Zero(kTag);
  auto hi = hn::Zero(kTag);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto v = hn::LoadU(kTag, w + i);
    lo = hn::Min(lo, v);
    hi = hn::Max(hi, v);
  }
  Range range{.low = hn::GetLane(hn::MinOfLanes(kTag, lo)),
              .high = hn::GetLane(hn::MaxOfLanes(kTag, hi))};
  for (; i < count; ++i) {
    range.low = std::min(range.low, w[i]);
    range.high = std::max(range.high, w[i]);
  }
  return range;
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

// Replaces the largest magnitudes of NVFP4 groups by their scales.
void ScaleBlocksOnTarget(const Grid& grid, int64_t count, float* scale) {
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  const FloatPoints<decltype(kTag)> points(E4m3());
  typename FloatPoints<decltype(kTag)>::Codes code;
  const auto top = hn::Set(kTag, grid.format->largest);
  const auto factor = hn::Set(kTag, grid.tensor_factor);
  const auto least = hn::Set(kTag, E4m3().SmallestNormal());
  const auto replace = [&](float* at) HWY_ATTR {
    const auto exact = hn::Div(hn::Div(hn::LoadU(kTag, at), top), factor);
    const auto rounded =
        points.Round(hn::Max(exact, least), hn::Set(kTag, 1.0f), hn::Zero(kTag), &code);
    hn::StoreU(hn::Mul(rounded, factor), kTag, at);
  };
  int64_t g = 0;
  for (; g + n <= count; g += n) replace(scale + g);
  if (g == count) return;
  float last[hn::MaxLanes(kTag)] = {};
  std::copy(scale + g, scale + count, last);
  replace(last);
  std::copy_n(last, count - g, scale + g);
}

bool FitRowOnTarget(const float* w, int64_t row, Grid* grid) {
  const bool blocks = grid->format->scale == GroupScale::kE4m3;
  bool finite =
      !blocks || std::isfinite(grid->tensor_factor * (E4m3().largest * grid->format->largest));
  const bool both_ends = !grid->format->is_float() && !grid->symmetric;
  float* scale = grid->scale.data() + row * grid->groups;
  for (int64_t g = 0; g < grid->groups; ++g) {
    const float* group = w + grid->GroupBegin(g);
    const int64_t count = grid->GroupCount(g);
    if (blocks) {
      scale[g] = LargestOnTarget(group, count);
      finite = finite && std::isfinite(scale[g]);
      continue;
    }
    Range range;
    if (both_ends) {
      range = RangeOnTarget(group, count);
    } else {
      range.high = LargestOnTarget(group, count);
    }
    finite = FitGroup(range.low, range.high, row, g, grid) && finite;
  }
  if (blocks) ScaleBlocksOnTarget(*grid, grid->groups, scale);
  return finite;
}

// Divides the weights of a group by its scale, which is exact, and sums in float32 over the group
// and in float64 over all groups. For the ideal scale an inverse will do: next to a tie, where it
// may choose the other neighbour, both have the same error.
void AddErrorsOnTarget(const Grid& grid, int64_t row, const float* HWY_RESTRICT weights,
                       const float* HWY_RESTRICT decoded, ErrorSums* sums) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> half;
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  const FloatPoints<decltype(kTag), true> points(*grid.format);
  typename FloatPoints<decltype(kTag), true>::Codes code;
  auto all_squares = hn::Zero(dd);
  auto all_dead = hn::Zero(dd);
  auto all_errors = hn::Zero(dd);
  auto all_ideal = hn::Zero(dd);
  for (int64_t g = 0; g < grid.groups; ++g) {
    const float* w = weights + grid.GroupBegin(g);
    const float* q = decoded + grid.GroupBegin(g);
    const int64_t count = grid.GroupCount(g);
    const float scale = grid.scale[static_cast<size_t>(row * grid.groups + g)];
    const auto inverse = hn::Set(kTag, 1 / scale);
    const float ideal_scale = std::max(LargestOnTarget(w, count) / grid.format->largest,
                                       std::numeric_limits<float>::min()) /
                              scale;
    auto squares = hn::Zero(kTag);
    auto dead = hn::Zero(kTag);
    auto errors = hn::Zero(kTag);
    auto ideal = hn::Zero(kTag);
    const auto add = [&](const float* w_at, const float* q_at) HWY_ATTR {
      const auto weight = hn::Mul(hn::LoadU(kTag, w_at), inverse);
      const auto point = hn::Mul(hn::LoadU(kTag, q_at), inverse);
      const auto is_dead = hn::Eq(point, hn::Zero(kTag));
      const auto rounded = points.Round(weight, hn::Set(kTag, ideal_scale), hn::Zero(kTag), &code);
      const auto lost = hn::IfThenElseZero(is_dead, weight);
      const auto error = hn::IfThenZeroElse(is_dead, hn::Sub(weight, point));
      const auto noise = hn::IfThenZeroElse(is_dead, hn::Sub(weight, rounded));
      squares = hn::MulAdd(weight, weight, squares);
      dead = hn::MulAdd(lost, lost, dead);
      errors = hn::MulAdd(error, error, errors);
      ideal = hn::MulAdd(noise, noise, ideal);
    };
    int64_t i = 0;
    for (; i + n <= count; i += n) add(w + i, q + i);
    if (i < count) {
      float last_w[hn::MaxLanes(kTag)] = {};
      float last_q[hn::MaxLanes(kTag)] = {};
      std::copy(w + i, w + count, last_w);
      std::copy(q + i, q + count, last_q);
      add(last_w, last_q);
    }
    const auto square = hn::Set(dd, static_cast<double>(scale) * static_cast<double>(scale));
    const auto add_group = [&](auto of_group, auto* sum) HWY_ATTR {
      HWY_ALIGN float lanes[hn::MaxLanes(kTag)];
      hn::Store(of_group, kTag, lanes);
      for (int64_t lane = 0; lane < n; lane += static_cast<int64_t>(hn::Lanes(dd))) {
        *sum = hn::MulAdd(square, hn::PromoteTo(dd, hn::Load(half, lanes + lane)), *sum);
      }
    };
    add_group(squares, &all_squares);
    add_group(dead, &all_dead);
    add_group(errors, &all_errors);
    add_group(ideal, &all_ideal);
  }
  sums->weights += hn::GetLane(hn::SumOfLanes(dd, all_squares));
  sums->dead += hn::GetLane(hn::SumOfLanes(dd, all_dead));
  sums->errors += hn::GetLane(hn::SumOfLanes(dd, all_errors));
  sums->ideal += hn::GetLane(hn::SumOfLanes(dd, all_ideal));
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {

HWY_EXPORT(LargestOnTarget);
HWY_EXPORT(RangeOnTarget);
HWY_EXPORT(ScaleBlocksOnTarget);
HWY_EXPORT(FitRowOnTarget);
HWY_EXPORT(RoundOnTarget);
HWY_EXPORT(AddErrorsOnTarget);

}  // namespace

float LeastScale(const QuantizerSpec& spec) {
  // With denormal weights the quotient may be 0.
  return std::max(static_cast<float>(spec.min_scale), std::numeric_limits<float>::denorm_min());
}

Grid EmptyGrid(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  Grid grid;
  grid.cols = cols;
  grid.bits = spec.bits;
  grid.format = &NumbersOf(spec);
  grid.scale_rule = spec.scale_rule;
  grid.symmetric = spec.symmetric;
  grid.narrow_range = spec.narrow_range;
  if (const ClipRule& rule = ClipRuleOf(spec); rule.limit != nullptr) grid.clip = &rule;
  grid.clip_value = spec.clip_value;
  grid.scale_dtype = spec.round_scale_last ? ScaleDtype::kFloat32 : spec.scale_dtype;
  grid.least_scale = LeastScale(spec);
  grid.group_size = GroupSizeOf(spec, cols);
  grid.groups = (cols + grid.group_size - 1) / grid.group_size;
  grid.scale.resize(static_cast<size_t>(rows * grid.groups));
  grid.zero.resize(static_cast<size_t>(rows * grid.groups));
  if (spec.round_scale_last) grid.limit.resize(grid.scale.size());
  return grid;
}

void SetTensorScale(float largest, Grid* grid) {
  if (grid->format->scale != GroupScale::kE4m3) return;
  const TensorScale scale = TensorScaleOf(largest, *grid->format);
  grid->tensor_factor = scale.factor;
  grid->tensor_scale = scale.inverse;
}

namespace {

float FloatScale(float largest, const Grid& grid) {
  const float scale = ScaleInFormat(largest, *grid.format, grid.scale_rule, grid.tensor_factor);
  return grid.format->scale == GroupScale::kSpec ? RoundScale(scale, grid.scale_dtype) : scale;
}

}  // namespace

bool FitGroup(float low, float high, int64_t row, int64_t g, Grid* grid) {
  const auto at = static_cast<size_t>(row * grid->groups + g);
  if (grid->format->is_float()) {
    const float largest = std::max(-low, high);
    const float scale = FloatScale(largest, *grid);
    grid->scale[at] = scale;
    // The largest number of the format may be decoded to more than float32 holds.
    return std::isfinite(scale * grid->format->largest) && std::isfinite(largest);
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
  const float exact = std::max((high - low) / (top - grid->min_code()), grid->least_scale);
  const float scale = RoundScale(exact, grid->scale_dtype);
  // Adding 0 turns -0 into 0. A scale rounded far from the exact one may put zero past the end.
  const float zero = grid->symmetric ? static_cast<float>(1 << (grid->bits - 1))
                                     : std::min(std::nearbyint(-low / scale) + 0.0f, top);
  grid->scale[at] = scale;
  grid->zero[at] = zero;
  if (!grid->limit.empty()) grid->limit[at] = high;
  return std::isfinite(scale);
}

Range RangeOf(const float* weights, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(RangeOnTarget)(weights, count);
}

float LargestOf(const float* weights, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestOnTarget)(weights, count);
}

bool FitRow(const float* weights, int64_t row, Grid* grid, int64_t* clipped) {
  if (grid->clip == nullptr) return HWY_DYNAMIC_DISPATCH(FitRowOnTarget)(weights, row, grid);
  bool fits = true;
  for (int64_t g = 0; g < grid->groups; ++g) {
    const float* group = weights + grid->GroupBegin(g);
    const int64_t count = grid->GroupCount(g);
    const float largest = LargestOf(group, count);
    float limit = grid->clip->limit(group, count, grid->clip_value);
    if (!(limit > 0) || !std::isfinite(largest)) limit = largest;
    if (clipped != nullptr) *clipped += limit < largest ? 1 : 0;
    fits = FitGroup(-limit, limit, row, g, grid) && fits;
  }
  return fits;
}

void RoundRow(const Grid& grid, int64_t row, const float* weights, uint8_t* codes, float* decoded) {
  HWY_DYNAMIC_DISPATCH(RoundOnTarget)(grid, row, weights, codes, decoded);
}

void AddErrors(const Grid& grid, int64_t row, const float* weights, const float* decoded,
               ErrorSums* sums) {
  HWY_DYNAMIC_DISPATCH(AddErrorsOnTarget)(grid, row, weights, decoded, sums);
}

bool RoundRowBeforeScale(ScaleDtype scale_dtype, int64_t row, const float* weights, Grid* grid,
                         uint8_t* codes, float* decoded) {
  const int64_t first = row * grid->groups;
  for (int64_t g = 0; g < grid->groups; ++g) {
    const float limit = grid->limit[static_cast<size_t>(first + g)];
    const int64_t begin = grid->GroupBegin(g);
    std::transform(weights + begin, weights + begin + grid->GroupCount(g), decoded + begin,
                   [limit](float w) { return std::min(std::max(w, -limit), limit); });
  }
  RoundRow(*grid, row, decoded, codes, nullptr);
  bool fits = true;
  for (int64_t at = first; at < first + grid->groups; ++at) {
    float& scale = grid->scale[static_cast<size_t>(at)];
    scale = RoundScale(scale, scale_dtype);
    fits = fits && std::isfinite(scale);
  }
  DecodeRow(*grid, row, codes, decoded);
  return fits;
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
