// Rounds vectors of weights to the points of a grid. Compiled once per instruction set; include
// after hwy/foreach_target.h.
#if defined(PTQWATCH_QUANTIZE_GRID_POINTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PTQWATCH_QUANTIZE_GRID_POINTS_INL_H_
#undef PTQWATCH_QUANTIZE_GRID_POINTS_INL_H_
#else
#define PTQWATCH_QUANTIZE_GRID_POINTS_INL_H_
#endif

#include "hwy/highway.h"
#include "quantize/kernels/grid.h"

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Round(w, scale, zero, code) returns the grid point nearest to w, half to even, and stores its
// code.

// Points scale * (code - zero).
template <class D>
class IntegerPoints {
 public:
  using Floats = hn::Vec<D>;
  using Codes = hn::Vec<hn::RebindToSigned<D>>;

  explicit IntegerPoints(const Grid& grid)
      : bottom_(hn::Set(D(), grid.min_code())), top_(hn::Set(D(), grid.max_code())) {}

  HWY_INLINE Floats Round(Floats w, Floats scale, Floats zero, Codes* code) const {
    const auto steps = hn::Add(hn::Round(hn::Div(w, scale)), zero);
    const auto nearest = hn::Min(hn::Max(steps, bottom_), top_);
    *code = hn::ConvertTo(hn::RebindToSigned<D>(), nearest);
    return hn::Mul(scale, hn::Sub(nearest, zero));
  }

 private:
  Floats bottom_;
  Floats top_;
};

// Points scale * number, for numbers of a floating-point format. Ignores the zero. Multiplying by
// the scale's inverse is faster than a division, and as exact if the scale is a power of two.
template <class D, bool kByInverse = false>
class FloatPoints {
 public:
  using Floats = hn::Vec<D>;
  using Codes = hn::Vec<hn::RebindToSigned<D>>;

  explicit FloatPoints(const NumberFormat& format)
      : largest_(hn::Set(D(), format.largest)),
        smallest_normal_(hn::Set(D(), format.SmallestNormal())),
        shifter_(hn::Set(D(), 1.5f * static_cast<float>(1 << (23 - format.mantissa_bits)))),
        shift_(23 - format.mantissa_bits),
        first_binade_(hn::ShiftRightSame(hn::BitCast(kInts, smallest_normal_), shift_)),
        sign_shift_(32 - format.bits) {}

  HWY_INLINE Floats Round(Floats w, Floats scale, Floats /*zero*/, Codes* code) const {
    const auto x = kByInverse ? hn::Mul(w, hn::Div(hn::Set(D(), 1.0f), scale)) : hn::Div(w, scale);
    const auto sign = hn::And(x, hn::SignBit(D()));
    const auto magnitude = hn::Min(hn::IfThenZeroElse(hn::IsNaN(x), hn::Abs(x)), largest_);
    // The power of two at or below the magnitude; the spacing is a fixed fraction of it.
    const auto exponent = hn::And(hn::BitCast(kInts, magnitude), hn::Set(kInts, 0x7F800000));
    const auto binade = hn::Max(hn::BitCast(D(), exponent), smallest_normal_);
    // Adding 1.5 * 2^23 spacings rounds to a multiple of the spacing, half to even, and leaves the
    // multiple in the lowest bits of the sum.
    const auto shifter = hn::Mul(binade, shifter_);
    const auto sum = hn::Add(magnitude, shifter);
    const auto multiple = hn::Sub(hn::BitCast(kInts, sum), hn::BitCast(kInts, shifter));
    const auto steps =
        hn::Sub(hn::ShiftRightSame(hn::BitCast(kInts, binade), shift_), first_binade_);
    const hn::RebindToUnsigned<D> unsigned_tag;
    const auto sign_code = hn::ShiftRightSame(hn::BitCast(unsigned_tag, sign), sign_shift_);
    *code = hn::Or(hn::Add(steps, multiple), hn::BitCast(kInts, sign_code));
    return hn::Mul(scale, hn::Or(hn::Sub(sum, shifter), sign));
  }

 private:
  static constexpr hn::RebindToSigned<D> kInts{};

  Floats largest_;
  Floats smallest_normal_;
  Floats shifter_;
  int shift_;
  Codes first_binade_;
  int sign_shift_;
};

// Calls work(points) with the points of the grid's format.
template <class D, class Work>
HWY_INLINE auto WithPoints(D /*d*/, const Grid& grid, const Work& work) {
  if (!grid.format->is_float()) return work(IntegerPoints<D>(grid));
  if (grid.format->scale == GroupScale::kE8m0) return work(FloatPoints<D, true>(*grid.format));
  return work(FloatPoints<D>(*grid.format));
}

}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PTQWATCH_QUANTIZE_GRID_POINTS_INL_H_
