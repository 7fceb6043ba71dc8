#ifndef PTQWATCH_CUDA_KERNELS_REDUCE_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_REDUCE_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/block_sum.h"
#include "cuda/kernels/kernel.h"
#include "cuda/kernels/scalars.h"

namespace ptqwatch::internal {

/// The number that Collapse makes of many.
enum class Fold {
  kSum,
  kSmallest,  ///< of non-negative numbers; -1 if all are infinite
  kLargest,   ///< of non-negative numbers
};

/// Writes the fold of each layer's float64 values to its numbers. One block per layer.
struct Collapse {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;
  struct Shared {
    BlockSum<kThreads> sum;
  };
  using Local = Nothing;

  int layers = 0;
  Fold fold = Fold::kSum;
  int64_t count = 0;
  int64_t spacing = 1;  ///< from one number to the next
  Strided<const double> values = {};
  PerLayer<double> numbers = {};
  int position = 0;

  int64_t Blocks() const { return layers; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block;
    if constexpr (kPhase == 0) {
      double result = First();
      for (int64_t i = at.thread; i < count; i += kThreads) {
        result = Join(result, values.at(layer)[i * spacing]);
      }
      shared.sum.value[at.thread] = result;
    } else if constexpr (kPhase == 1) {
      if (fold == Fold::kSum) shared.sum.AddParts(at.thread);
    } else if (at.thread == 0) {
      double result = First();
      if (fold == Fold::kSum) {
        result = shared.sum.Total();
      } else {
        for (int i = 0; i < kThreads; ++i) result = Join(result, shared.sum.value[i]);
      }
      numbers.at[layer][position] = fold == Fold::kSmallest && result == HUGE_VAL ? -1 : result;
    }
  }

 private:
  PTQWATCH_HOST_DEVICE double First() const { return fold == Fold::kSmallest ? HUGE_VAL : 0; }
  PTQWATCH_HOST_DEVICE double Join(double a, double b) const {
    if (fold == Fold::kSum) return a + b;
    return (fold == Fold::kSmallest ? b < a : b > a) ? b : a;
  }
};

/// Finds the first number that is not finite: its position per block of threads, or infinity.
template <typename T>
struct FindNonFinite {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  struct Shared {
    double first[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t sizes[kMaxBatch] = {};
  int64_t parts = 0;  ///< blocks per layer
  PerLayer<const T> values = {};
  Strided<double> partials = {};  ///< [parts]

  int64_t Blocks() const { return layers * parts; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / parts;
    const int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      const int64_t each = CeilDiv(sizes[layer], parts);
      const int64_t end = AtMost(sizes[layer], (part + 1) * each);
      double first = HUGE_VAL;
      for (int64_t i = part * each + at.thread; i < end; i += kThreads) {
        const T value = values.at[layer][i];
        // 0 * x is NaN if x is not finite.
        if (!(value * 0 == 0) && first == HUGE_VAL) first = static_cast<double>(i);
      }
      shared.first[at.thread] = first;
    } else if (at.thread == 0) {
      double first = HUGE_VAL;
      for (int i = 0; i < kThreads; ++i) {
        first = shared.first[i] < first ? shared.first[i] : first;
      }
      partials.at(layer)[part] = first;
    }
  }
};

/// Partial sums of (a - b)^2: differences in float32, squares and sums in float64.
struct SquaredDistance {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 3;
  struct Shared {
    BlockSum<kThreads> sum;
  };
  using Local = Nothing;

  int layers = 0;
  int64_t size = 0;
  int64_t parts = 0;
  PerLayer<const float> a = {};
  PerLayer<const float> b = {};
  Strided<double> partials = {};  ///< [parts]

  int64_t Blocks() const { return layers * parts; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / parts;
    const int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      const int64_t each = CeilDiv(size, parts);
      const int64_t end = AtMost(size, (part + 1) * each);
      double sum = 0;
      for (int64_t i = part * each + at.thread; i < end; i += kThreads) {
        const double difference = static_cast<double>(a.at[layer][i] - b.at[layer][i]);
        sum += difference * difference;
      }
      shared.sum.value[at.thread] = sum;
    } else if constexpr (kPhase == 1) {
      shared.sum.AddParts(at.thread);
    } else if (at.thread == 0) {
      partials.at(layer)[part] = shared.sum.Total();
    }
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_REDUCE_KERNELS_H_
