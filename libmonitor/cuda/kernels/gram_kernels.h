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
    return FromBits16(static_cast<const uint16_t*>(data)[at]);
  }
  PTQWATCH_HOST_DEVICE float FromBits16(uint16_t bits) const {
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

/// Finds the rows that are not finite. For rows that matrix units can read where they are: of 16
/// bits, and eight numbers at a time. 32 threads per row. Cost: one read of the rows.
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
      const uint32_t exponent = rows.type == RowType::kBFloat16 ? 0x7f80u : 0x7c00u;
      const uint16_t* from = static_cast<const uint16_t*>(rows.data) + row * rows.stride;
      int good = 1;
      for (int64_t c = at.thread % kLanes * 8; c < rows.cols; c += kLanes * 8) {
        const Eight eight = *reinterpret_cast<const Eight*>(from + c);
        PTQWATCH_UNROLL
        for (int i = 0; i < 8; ++i) good &= (eight.bits[i] & exponent) != exponent ? 1 : 0;
      }
      shared.finite[at.thread] = good;
    } else if (at.thread % kLanes == 0) {
      int good = 1;
      for (int i = 0; i < kLanes; ++i) good &= shared.finite[at.thread + i];
      finite[row] = static_cast<uint8_t>(good);
    }
  }

 private:
  struct alignas(16) Eight {
    uint16_t bits[8];
  };
};

/// Sums and maxima of |x| over the finite rows of a chunk, by column and by slab of rows.
struct SumColumns {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 1;
  static constexpr int64_t kSlabRows = 128;
  static constexpr int kTogether = 8;
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
    for (int64_t r = slab * kSlabRows; r < end; r += kTogether) {
      // Reads all numbers first, in any case, so that no read waits for another.
      float number[kTogether];
      uint8_t good[kTogether];
      if (rows.type == RowType::kFloat32) {
        const float* from = static_cast<const float*>(rows.data) + c;
        PTQWATCH_UNROLL
        for (int i = 0; i < kTogether; ++i) number[i] = from[AtMost(r + i, end - 1) * rows.stride];
      } else {
        const uint16_t* from = static_cast<const uint16_t*>(rows.data) + c;
        uint16_t bits[kTogether];
        PTQWATCH_UNROLL
        for (int i = 0; i < kTogether; ++i) bits[i] = from[AtMost(r + i, end - 1) * rows.stride];
        PTQWATCH_UNROLL
        for (int i = 0; i < kTogether; ++i) number[i] = rows.FromBits16(bits[i]);
      }
      PTQWATCH_UNROLL
      for (int i = 0; i < kTogether; ++i) good[i] = finite[AtMost(r + i, end - 1)];
      PTQWATCH_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const float magnitude = r + i < end && good[i] != 0 ? fabsf(number[i]) : 0.0f;
        sum += static_cast<double>(magnitude);
        largest = magnitude > largest ? magnitude : largest;
      }
    }
    sums[slab * rows.cols + c] = sum;
    maxima[slab * rows.cols + c] = largest;
  }
};

/// Adds the slabs of some rows of a chunk to the totals, and counts the rows.
struct AddColumns {
  static constexpr int kThreads = 64;  ///< few, to occupy more multiprocessors
  static constexpr int kTogether = 16;
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
        for (int64_t begin = 0; begin < slabs; begin += kTogether) {
          // Reads all numbers first, so that no read waits for another.
          double one[kTogether];
          float most[kTogether];
          PTQWATCH_UNROLL
          for (int i = 0; i < kTogether; ++i) {
            const int64_t slab = AtMost(begin + i, slabs - 1);
            one[i] = sums[slab * cols + c];
            most[i] = maxima[slab * cols + c];
          }
          PTQWATCH_UNROLL
          for (int i = 0; i < kTogether; ++i) {
            if (begin + i < slabs) sum += one[i];
            largest = most[i] > largest ? most[i] : largest;
          }
        }
        abs_sum[c] = sum;
        abs_max[c] = largest;
      }
      if (at.block == 0) {
        int64_t count = 0;
        for (int64_t begin = at.thread; begin < rows; begin += kTogether * kThreads) {
          PTQWATCH_UNROLL
          for (int i = 0; i < kTogether; ++i) {
            const int64_t r = begin + i * kThreads;
            const int flag = finite[AtMost(r, rows - 1)];
            count += r < rows ? flag : 0;
          }
        }
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
