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
void RoundOnTarget(const float* w, int64_t count, float scale, float zero, float top,
                   uint8_t* HWY_RESTRICT codes, float* decoded) {
  const hn::RebindToSigned<decltype(kTag)> di;
  const hn::Rebind<uint8_t, decltype(kTag)> db;
  const int64_t n = static_cast<int64_t>(hn::Lanes(kTag));
  const auto s = hn::Set(kTag, scale);
  const auto z = hn::Set(kTag, zero);
  int64_t i = 0;
  for (; i + n <= count; i += n) {
    const auto steps = hn::Round(hn::Div(hn::LoadU(kTag, w + i), s));
    const auto code = hn::Min(hn::Max(hn::Add(steps, z), hn::Zero(kTag)), hn::Set(kTag, top));
    if (codes != nullptr) hn::StoreU(hn::DemoteTo(db, hn::ConvertTo(di, code)), db, codes + i);
    if (decoded != nullptr) hn::StoreU(hn::Mul(s, hn::Sub(code, z)), kTag, decoded + i);
  }
  for (; i < count; ++i) {
    const float steps = std::nearbyint(w[i] / scale) + zero;
    const float code = steps > 0 ? std::min(steps, top) : 0.0f;
    if (codes != nullptr) codes[i] = static_cast<uint8_t>(code);
    if (decoded != nullptr) decoded[i] = scale * (code - zero);
  }
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {

HWY_EXPORT(RangeOnTarget);
HWY_EXPORT(RoundOnTarget);

}  // namespace

Grid EmptyGrid(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  Grid grid;
  grid.rows = rows;
  grid.cols = cols;
  grid.bits = spec.bits;
  grid.symmetric = spec.symmetric;
  grid.scale_dtype = spec.scale_dtype;
  grid.group_size = spec.group_size < 0 ? cols : std::min<int64_t>(spec.group_size, cols);
  grid.groups = (cols + grid.group_size - 1) / grid.group_size;
  grid.scale.resize(static_cast<size_t>(rows * grid.groups));
  grid.zero.resize(static_cast<size_t>(rows * grid.groups));
  return grid;
}

bool FitGroup(float low, float high, int64_t row, int64_t g, Grid* grid) {
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

bool FitRow(const float* weights, int64_t row, Grid* grid) {
  bool finite = true;
  for (int64_t g = 0; g < grid->groups; ++g) {
    float low = 0;
    float high = 0;
    HWY_DYNAMIC_DISPATCH(RangeOnTarget)
    (weights + grid->GroupBegin(g), grid->GroupCount(g), &low, &high);
    finite = FitGroup(low, high, row, g, grid) && finite;
  }
  return finite;
}

void RoundRow(const Grid& grid, int64_t row, const float* weights, uint8_t* codes, float* decoded) {
  for (int64_t g = 0; g < grid.groups; ++g) {
    const int64_t begin = grid.GroupBegin(g);
    const size_t at = static_cast<size_t>(row * grid.groups + g);
    HWY_DYNAMIC_DISPATCH(RoundOnTarget)
    (weights + begin, grid.GroupCount(g), grid.scale[at], grid.zero[at], grid.max_code(),
     codes == nullptr ? nullptr : codes + begin, decoded == nullptr ? nullptr : decoded + begin);
  }
}

void DecodeRow(const Grid& grid, int64_t row, const uint8_t* codes, float* decoded) {
  for (int64_t g = 0; g < grid.groups; ++g) {
    const size_t at = static_cast<size_t>(row * grid.groups + g);
    const float scale = grid.scale[at];
    const float zero = grid.zero[at];
    const int64_t begin = grid.GroupBegin(g);
    for (int64_t i = begin; i < begin + grid.GroupCount(g); ++i) {
      decoded[i] = scale * (static_cast<float>(codes[i]) - zero);
    }
  }
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
