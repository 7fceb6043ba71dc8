#ifndef PTQWATCH_CUDA_KERNELS_VECTOR_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_VECTOR_KERNELS_H_

#include <cstdint>

#include "cuda/kernels/block_sum.h"
#include "cuda/kernels/kernel.h"

namespace ptqwatch::internal {

/// 64 random bits: splitmix64 (Steele, Lea, Flood 2014) as a counter-based generator.
PTQWATCH_HOST_DEVICE inline uint64_t RandomWord(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Sets element i to +1 or -1 by bit i % 64 of random word i / 64.
template <typename T>
struct DrawSigns {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  static constexpr int64_t kPerThread = 16;
  using Shared = Nothing;
  using Local = Nothing;

  uint64_t seed = 0;
  int64_t size = 0;
  T* out = nullptr;

  int64_t Blocks() const { return CeilDiv(size, kThreads * kPerThread); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t begin = at.block * kThreads * kPerThread + at.thread;
    for (int64_t i = begin; i < begin + kThreads * kPerThread && i < size; i += kThreads) {
      const uint64_t word = RandomWord(seed, static_cast<uint64_t>(i / 64));
      out[i] = (word >> (i % 64) & 1) != 0 ? T{1} : T{-1};
    }
  }
};

/// Elements [begin, end) of a vector.
struct VectorPiece {
  int64_t begin;
  int64_t end;
};

/// Inner products of several vectors with one vector, in float64: one sum per vector and piece.
template <typename T>
struct DotPieces {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;
  struct Shared {
    BlockSum<kThreads> sum;
  };
  using Local = Nothing;

  int vectors = 0;
  int64_t pieces = 0;
  const VectorPiece* table = nullptr;  ///< [pieces]
  PerLayer<const T> x = {};
  const T* y = nullptr;
  double* sums = nullptr;  ///< [vectors, pieces]

  int64_t Blocks() const { return vectors * pieces; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    // Neighbouring blocks read the same piece of y.
    const int64_t vector = at.block % vectors;
    const int64_t piece = at.block / vectors;
    if constexpr (kPhase == 0) {
      const T* from = x.at[vector];
      const VectorPiece part = table[piece];
      double sum = 0;
      for (int64_t i = part.begin + at.thread; i < part.end; i += kThreads) {
        sum += static_cast<double>(from[i]) * static_cast<double>(y[i]);
      }
      shared.sum.value[at.thread] = sum;
    } else if constexpr (kPhase == 1) {
      shared.sum.AddParts(at.thread);
    } else if (at.thread == 0) {
      sums[vector * pieces + piece] = shared.sum.Total();
    }
  }
};

/// y += the sum of factors[i] x_i, which is added up in float64 and rounded once.
template <typename T>
struct AddScaled {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  static constexpr int64_t kPerThread = 4;
  using Shared = Nothing;
  using Local = Nothing;

  int vectors = 0;
  int64_t size = 0;
  double factors[kMaxBatch] = {};
  PerLayer<const T> x = {};
  T* y = nullptr;

  int64_t Blocks() const { return CeilDiv(size, kThreads * kPerThread); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    const int64_t begin = at.block * kThreads * kPerThread + at.thread;
    for (int64_t i = begin; i < begin + kThreads * kPerThread && i < size; i += kThreads) {
      double sum = static_cast<double>(y[i]);
      for (int k = 0; k < vectors; ++k) sum += factors[k] * static_cast<double>(x.at[k][i]);
      y[i] = static_cast<T>(sum);
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_VECTOR_KERNELS_H_
