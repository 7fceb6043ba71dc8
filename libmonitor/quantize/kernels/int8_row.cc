#include "quantize/kernels/int8_row.h"

#include <algorithm>
#include <cmath>

#include "quantize/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/kernels/int8_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

const hn::ScalableTag<float> kInt8Tag;

// Rounds n * absmax / 127 once: the product has up to seven digits more than float32, and its
// quotient is never so near to the middle of two numbers that a second rounding could show.
float DecodeExactly(float n, float absmax) {
  return static_cast<float>(static_cast<double>(n) * static_cast<double>(absmax) / 127.0);
}

// Quantizes a vector of values.
class Int8Rounder {
 public:
  explicit Int8Rounder(float absmax)
      : absmax_(absmax), steps_(127 / absmax), fused_(HWY_NATIVE_FMA && InRange(absmax)) {}

  void Round(const float* values, uint8_t* codes, float* decoded) const {
    const auto scaled = Scaled(hn::LoadU(kInt8Tag, values));
    const auto top = hn::Set(kInt8Tag, 127.0f);
    const auto n = hn::Min(hn::Max(hn::Round(scaled), hn::Neg(top)), top);
    const auto code = hn::ConvertTo(hn::RebindToSigned<decltype(kInt8Tag)>(),
                                    hn::Add(n, hn::Set(kInt8Tag, 128.0f)));
    const hn::Rebind<uint8_t, decltype(kInt8Tag)> db;
    hn::StoreU(hn::DemoteTo(db, code), db, codes);
    if (fused_) {
      hn::StoreU(Decode(n), kInt8Tag, decoded);
      return;
    }
    for (size_t i = 0; i < hn::Lanes(kInt8Tag); ++i) {
      decoded[i] = DecodeExactly(static_cast<float>(codes[i]) - 128, absmax_);
    }
  }

 private:
  using Floats = hn::Vec<hn::ScalableTag<float>>;

  // Neither a product of Decode nor what it leaves over is too large or too small for float32.
  static bool InRange(float absmax) { return absmax >= 1e-30f && absmax <= 1e36f; }

  Floats Scaled(Floats value) const {
    if (std::isfinite(steps_)) return hn::Mul(value, hn::Set(kInt8Tag, steps_));
    // Tiny numbers have no finite reciprocal.
    return hn::Mul(hn::Div(value, hn::Set(kInt8Tag, absmax_)), hn::Set(kInt8Tag, 127.0f));
  }

  // The quotient by a reciprocal, and a correction by what it leaves of the exact product.
  Floats Decode(Floats n) const {
    const auto absmax = hn::Set(kInt8Tag, absmax_);
    const auto inverse = hn::Set(kInt8Tag, 1.0f / 127.0f);
    const auto high = hn::Mul(n, absmax);
    const auto low = hn::MulSub(n, absmax, high);
    const auto quotient = hn::Mul(high, inverse);
    const auto rest = hn::Add(hn::NegMulAdd(hn::Set(kInt8Tag, 127.0f), quotient, high), low);
    return hn::MulAdd(rest, inverse, quotient);
  }

  float absmax_;
  float steps_;
  bool fused_;
};

void QuantizeInt8RowOnTarget(const float* values, int64_t count, float absmax, uint8_t* codes,
                             float* decoded) {
  const int64_t n = static_cast<int64_t>(hn::Lanes(kInt8Tag));
  const Int8Rounder rounder(absmax);
  int64_t i = 0;
  for (; i + n <= count; i += n) rounder.Round(values + i, codes + i, decoded + i);
  if (i == count) return;
  float last[hn::MaxLanes(kInt8Tag)] = {};
  float last_decoded[hn::MaxLanes(kInt8Tag)];
  uint8_t last_codes[hn::MaxLanes(kInt8Tag)];
  std::copy(values + i, values + count, last);
  rounder.Round(last, last_codes, last_decoded);
  std::copy_n(last_codes, count - i, codes + i);
  std::copy_n(last_decoded, count - i, decoded + i);
}

}  // namespace
}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ptqwatch::internal {
namespace {

HWY_EXPORT(QuantizeInt8RowOnTarget);

}  // namespace

void QuantizeInt8Row(const float* values, int64_t count, float absmax, uint8_t* codes,
                     float* decoded) {
  if (absmax == 0) {
    std::fill_n(codes, count, uint8_t{128});
    std::fill_n(decoded, count, 0.0f);
    return;
  }
  HWY_DYNAMIC_DISPATCH(QuantizeInt8RowOnTarget)(values, count, absmax, codes, decoded);
}

}  // namespace ptqwatch::internal
#endif  // HWY_ONCE
