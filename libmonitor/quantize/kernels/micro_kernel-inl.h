// The inner loop shared by Gram, factorisation and GPTQ: a 4 x (3 vectors) register tile, or two of
// them on targets with 32 registers. Compiled once per instruction set; include after
// hwy/foreach_target.h.
#if defined(PTQWATCH_QUANTIZE_MICRO_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PTQWATCH_QUANTIZE_MICRO_KERNEL_INL_H_
#undef PTQWATCH_QUANTIZE_MICRO_KERNEL_INL_H_
#else
#define PTQWATCH_QUANTIZE_MICRO_KERNEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "quantize/kernels/aligned_buffer.h"
// Included after aligned_buffer.h, which selects Highway's targets.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ptqwatch::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 64 bytes per vector, so that a panel's width divides 48 (float) and 24 (double) on every
// target.
template <typename T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;

// Columns of a packed panel.
template <class D>
HWY_INLINE int64_t PanelWidth(D d) {
  return 3 * static_cast<int64_t>(hn::Lanes(d));
}

// c[4][P] += sum over k < depth of a[k][4] * b[k][P], P = PanelWidth(d). Each element is summed in
// the order of k, whatever the vector width. b and c must be aligned.
template <class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void MulAddTile(D d, int64_t depth, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                             T* HWY_RESTRICT c) {
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  auto c00 = hn::Load(d, c), c01 = hn::Load(d, c + n), c02 = hn::Load(d, c + 2 * n);
  auto c10 = hn::Load(d, c + 3 * n), c11 = hn::Load(d, c + 4 * n), c12 = hn::Load(d, c + 5 * n);
  auto c20 = hn::Load(d, c + 6 * n), c21 = hn::Load(d, c + 7 * n), c22 = hn::Load(d, c + 8 * n);
  auto c30 = hn::Load(d, c + 9 * n), c31 = hn::Load(d, c + 10 * n), c32 = hn::Load(d, c + 11 * n);
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    const auto b0 = hn::Load(d, b), b1 = hn::Load(d, b + n), b2 = hn::Load(d, b + 2 * n);
    const auto a0 = hn::Set(d, a[0]);
    c00 = hn::MulAdd(a0, b0, c00);
    c01 = hn::MulAdd(a0, b1, c01);
    c02 = hn::MulAdd(a0, b2, c02);
    const auto a1 = hn::Set(d, a[1]);
    c10 = hn::MulAdd(a1, b0, c10);
    c11 = hn::MulAdd(a1, b1, c11);
    c12 = hn::MulAdd(a1, b2, c12);
    const auto a2 = hn::Set(d, a[2]);
    c20 = hn::MulAdd(a2, b0, c20);
    c21 = hn::MulAdd(a2, b1, c21);
    c22 = hn::MulAdd(a2, b2, c22);
    const auto a3 = hn::Set(d, a[3]);
    c30 = hn::MulAdd(a3, b0, c30);
    c31 = hn::MulAdd(a3, b1, c31);
    c32 = hn::MulAdd(a3, b2, c32);
    a += 4;
    b += 3 * n;
  }
  hn::Store(c00, d, c);
  hn::Store(c01, d, c + n);
  hn::Store(c02, d, c + 2 * n);
  hn::Store(c10, d, c + 3 * n);
  hn::Store(c11, d, c + 4 * n);
  hn::Store(c12, d, c + 5 * n);
  hn::Store(c20, d, c + 6 * n);
  hn::Store(c21, d, c + 7 * n);
  hn::Store(c22, d, c + 8 * n);
  hn::Store(c30, d, c + 9 * n);
  hn::Store(c31, d, c + 10 * n);
  hn::Store(c32, d, c + 11 * n);
}

#if HWY_TARGET <= HWY_AVX3
// Two tiles at once, c[4 .. 7][P] with the factors a1. Each element gets the same sum as in
// MulAddTile. 24 sums hide the latency of the products better than 12, and b is loaded half as
// often. This needs the 32 registers of AVX-512.
template <class D, typename T = hn::TFromD<D>>
HWY_NOINLINE void MulAddTwoTiles(D d, int64_t depth, const T* HWY_RESTRICT a0,
                                 const T* HWY_RESTRICT a1, const T* HWY_RESTRICT b,
                                 T* HWY_RESTRICT c) {
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sum[8][3];
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; ++r) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; ++v) sum[r][v] = hn::Load(d, c + (3 * r + v) * n);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const auto b0 = hn::Load(d, b), b1 = hn::Load(d, b + n), b2 = hn::Load(d, b + 2 * n);
#pragma GCC unroll 8
    for (int64_t r = 0; r < 8; ++r) {
      const auto factor = hn::Set(d, r < 4 ? a0[r] : a1[r - 4]);
      sum[r][0] = hn::MulAdd(factor, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(factor, b1, sum[r][1]);
      sum[r][2] = hn::MulAdd(factor, b2, sum[r][2]);
    }
    a0 += 4;
    a1 += 4;
    b += 3 * n;
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; ++r) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; ++v) hn::Store(sum[r][v], d, c + (3 * r + v) * n);
  }
}
#endif

// Memory to prefetch during a multiplication: the caller's next operands.
template <typename T>
struct Ahead {
  const T* at = nullptr;
  int64_t count = 0;  // 0: nothing
};

// `quads` tiles that share b: c[4 q .. 4 q + 3][P] += a_q^T b, a_q = a + q * a_stride.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void MulAddTiles(D d, int64_t depth, int64_t quads, const T* HWY_RESTRICT a,
                            int64_t a_stride, const T* HWY_RESTRICT b, T* HWY_RESTRICT c,
                            Ahead<T> ahead) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t share = quads > 0 ? RoundUp((ahead.count + quads - 1) / quads, kLine) : 0;
  const auto prefetch = [&](int64_t first, int64_t count) {
    const int64_t end = std::min(ahead.count, (first + count) * share);
    for (int64_t i = first * share; i < end; i += kLine) hwy::Prefetch(ahead.at + i);
  };
  int64_t q = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; q + 2 <= quads; q += 2) {
    prefetch(q, 2);
    MulAddTwoTiles(d, depth, a + q * a_stride, a + (q + 1) * a_stride, b,
                   c + 4 * q * PanelWidth(d));
  }
#endif
  for (; q < quads; ++q) {
    prefetch(q, 1);
    MulAddTile(d, depth, a + q * a_stride, b, c + 4 * q * PanelWidth(d));
  }
}

// A vector of doubles from aligned floats or doubles.
template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const float* HWY_RESTRICT from) {
  const hn::Rebind<float, DD> df;
  return hn::PromoteTo(dd, hn::Load(df, from));
}
template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const double* HWY_RESTRICT from) {
  return hn::Load(dd, from);
}

}  // namespace ptqwatch::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
