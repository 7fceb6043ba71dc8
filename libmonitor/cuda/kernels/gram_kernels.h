#ifndef PTQWATCH_CUDA_KERNELS_GRAM_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_GRAM_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/kernel.h"
#include "cuda/kernels/scalars.h"

namespace ptqwatch::internal {

enum class RowType { kFloat32, kBFloat16, kFloat16 };

/// A matrix of tokens in a device's memory.
struct DeviceRows {
  const void* data = nullptr;
  RowType type = RowType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< numbers from one row to the next; at least `cols`

  PTQWATCH_HOST_DEVICE float Number(int64_t row, int64_t col) const {
    const int64_t at = row * stride + col;
    if (type == RowType::kFloat32) return static_cast<const float*>(data)[at];
    const uint16_t bits = static_cast<const uint16_t*>(data)[at];
    return type == RowType::kBFloat16 ? FromBFloat16(bits) : FromFloat16(bits);
  }
};

/// Writes rows for the matrix product, `padded` numbers each. Rows that are not finite become
/// zeros. One block per row.
///   bits16  the 16-bit number itself, or for float32 the nearest bfloat16
///   rest16  for float32: the nearest bfloat16 to the remainder
///   wide    in float64, instead of both
struct StageRows {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  struct Shared {
    int finite[kThreads];
  };
  using Local = Nothing;

  DeviceRows rows = {};
  int64_t padded = 0;
  uint16_t* bits16 = nullptr;
  uint16_t* rest16 = nullptr;
  double* wide = nullptr;
  uint8_t* finite = nullptr;  ///< [rows]: 1 for a finite row

  int64_t Blocks() const { return rows.rows; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t row = at.block;
    if constexpr (kPhase == 0) {
      int good = 1;
      for (int64_t c = at.thread; c < rows.cols; c += kThreads) {
        good &= IsFiniteBits(rows.Number(row, c)) ? 1 : 0;
      }
      shared.finite[at.thread] = good;
    } else {
      int good = 1;
      for (int i = 0; i < kThreads; ++i) good &= shared.finite[i];
      if (at.thread == 0) finite[row] = static_cast<uint8_t>(good);
      for (int64_t c = at.thread; c < padded; c += kThreads) {
        Write(row * padded + c, good != 0 && c < rows.cols ? rows.Number(row, c) : 0.0f);
      }
    }
  }

 private:
  PTQWATCH_HOST_DEVICE void Write(int64_t to, float x) const {
    if (wide != nullptr) {
      wide[to] = static_cast<double>(x);
    } else if (rows.type == RowType::kFloat32) {
      const TwoBFloat16 parts = Split(x);
      bits16[to] = parts.high;
      rest16[to] = parts.rest;
    } else {
      bits16[to] = rows.type == RowType::kBFloat16 ? ToBFloat16(x) : HalfBits(x);
    }
  }
  // The float16 bits of a number that was a float16.
  PTQWATCH_HOST_DEVICE static uint16_t HalfBits(float x) {
    const uint32_t bits = FloatBits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t exponent = (bits >> 23) & 0xffu;
    if (exponent > 112) {
      return static_cast<uint16_t>(sign | ((exponent - 112) << 10) | ((bits >> 13) & 0x3ffu));
    }
    const float magnitude = x < 0 ? -x : x;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(magnitude * 0x1p24f));
  }
};

/// Finds the rows that are not finite. 32 threads per row. Cost: one read of the rows.
struct FlagRows {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kLanes = 32;
  struct Shared {
    int finite[kThreads];
  };
  using Local = Nothing;

  DeviceRows rows = {};
  uint8_t* finite = nullptr;  ///< [rows]: 1 for a finite row

  int64_t Blocks() const { return CeilDiv(rows.rows, kThreads / kLanes); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t row = at.block * (kThreads / kLanes) + at.thread / kLanes;
    if (row >= rows.rows) return;
    if constexpr (kPhase == 0) {
      int good = 1;
      for (int64_t c = at.thread % kLanes; c < rows.cols; c += kLanes) {
        good &= IsFiniteBits(rows.Number(row, c)) ? 1 : 0;
      }
      shared.finite[at.thread] = good;
    } else if (at.thread % kLanes == 0) {
      int good = 1;
      for (int i = 0; i < kLanes; ++i) good &= shared.finite[at.thread + i];
      finite[row] = static_cast<uint8_t>(good);
    }
  }
};

/// Sums and maxima of |x| over the finite rows of a chunk, by column and by slab of rows.
struct SumColumns {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 1;
  static constexpr int64_t kSlabRows = 128;
  using Shared = Nothing;
  using Local = Nothing;

  DeviceRows rows = {};
  const uint8_t* finite = nullptr;
  double* sums = nullptr;   ///< [slabs, cols]
  float* maxima = nullptr;  ///< [slabs, cols]

  int64_t Slabs() const { return CeilDiv(rows.rows, kSlabRows); }
  PTQWATCH_HOST_DEVICE int64_t Strips() const { return CeilDiv(rows.cols, kThreads); }
  int64_t Blocks() const { return Slabs() * Strips(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t slab = at.block / Strips();
    const int64_t c = at.block % Strips() * kThreads + at.thread;
    if (c >= rows.cols) return;
    const int64_t end = AtMost(rows.rows, (slab + 1) * kSlabRows);
    double sum = 0;
    float largest = 0;
    for (int64_t r = slab * kSlabRows; r < end; ++r) {
      // Reads the number in any case, so that the two loads do not wait for each other.
      const float number = fabsf(rows.Number(r, c));
      const float magnitude = finite[r] != 0 ? number : 0.0f;
      sum += static_cast<double>(magnitude);
      largest = magnitude > largest ? magnitude : largest;
    }
    sums[slab * rows.cols + c] = sum;
    maxima[slab * rows.cols + c] = largest;
  }
};

/// Adds the slabs of some rows of a chunk to the totals, and counts the rows.
struct AddColumns {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 2;
  struct Shared {
    int64_t finite[kThreads];
  };
  using Local = Nothing;

  int64_t rows = 0;
  int64_t cols = 0;
  int64_t slabs = 0;
  const uint8_t* finite = nullptr;
  const double* sums = nullptr;
  const float* maxima = nullptr;
  double* abs_sum = nullptr;
  float* abs_max = nullptr;
  int64_t* counts = nullptr;   ///< finite rows, other rows
  bool begins = false;         ///< these are the chunk's first rows
  int64_t* skipped = nullptr;  ///< the chunk's rows so far that are not finite; may be null

  int64_t Blocks() const { return CeilDiv(cols, kThreads); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    if constexpr (kPhase == 0) {
      const int64_t c = at.block * kThreads + at.thread;
      if (c < cols) {
        double sum = abs_sum[c];
        float largest = abs_max[c];
        for (int64_t s = 0; s < slabs; ++s) {
          sum += sums[s * cols + c];
          largest = maxima[s * cols + c] > largest ? maxima[s * cols + c] : largest;
        }
        abs_sum[c] = sum;
        abs_max[c] = largest;
      }
      if (at.block == 0) {
        int64_t count = 0;
        for (int64_t r = at.thread; r < rows; r += kThreads) count += finite[r];
        shared.finite[at.thread] = count;
      }
    } else if (at.block == 0 && at.thread == 0) {
      int64_t count = 0;
      for (int i = 0; i < kThreads; ++i) count += shared.finite[i];
      counts[0] += count;
      counts[1] += rows - count;
      if (skipped != nullptr) *skipped = (begins ? 0 : *skipped) + rows - count;
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_GRAM_KERNELS_H_
