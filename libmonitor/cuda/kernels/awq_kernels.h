#ifndef PTQWATCH_CUDA_KERNELS_AWQ_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_AWQ_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/kernel.h"
#include "cuda/kernels/numbers.h"

namespace ptqwatch::internal {

/// AWQ's channel scale at one ratio, as ChannelScale in quantize/awq.cc. One block per layer.
struct ChannelScales {
  static constexpr int kThreads = 512;
  static constexpr int kPhases = 2;
  struct Shared {
    double smallest[kThreads];
    double largest[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  int64_t cols = 0;
  int ratio = 0;  ///< in twentieths; -1 means kBestRatio in `numbers`
  PerLayer<const double> abs_sum = {};
  PerLayer<const int64_t> counts = {};
  PerLayer<const double> numbers = {};
  Strided<double> exact = {};  ///< [cols]: scratch
  Strided<float> scale = {};   ///< [cols]
  PerLayer<float> kept = {};   ///< [cols]: second output; may be null

  int64_t Blocks() const { return layers; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block;
    double* s = exact.at(layer);
    if constexpr (kPhase == 0) {
      const double step = ratio >= 0 ? ratio : numbers.at[layer][kBestRatio];
      const double power = step / kAwqRatios;
      const double tokens = static_cast<double>(counts.at[layer][0]);
      double smallest = HUGE_VAL;
      double largest = 0;
      for (int64_t c = at.thread; c < cols; c += kThreads) {
        double value = pow(abs_sum.at[layer][c] / tokens, power);
        if (!(value > 1e-4)) value = 1e-4;
        s[c] = value;
        smallest = value < smallest ? value : smallest;
        largest = value > largest ? value : largest;
      }
      shared.smallest[at.thread] = smallest;
      shared.largest[at.thread] = largest;
    } else {
      double smallest = HUGE_VAL;
      double largest = 0;
      for (int i = 0; i < kThreads; ++i) {
        smallest = shared.smallest[i] < smallest ? shared.smallest[i] : smallest;
        largest = shared.largest[i] > largest ? shared.largest[i] : largest;
      }
      const double middle = sqrt(largest * smallest);
      for (int64_t c = at.thread; c < cols; c += kThreads) {
        const float rounded = static_cast<float>(s[c] / middle);
        scale.at(layer)[c] = rounded;
        if (kept.at[layer] != nullptr) kept.at[layer][c] = rounded;
      }
    }
  }
};

/// Picks the ratio with the smallest loss, the first one on a tie. A loss that is not finite loses.
/// One block per layer.
struct PickRatio {
  static constexpr int kThreads = 32;
  static constexpr int kPhases = 1;
  using Shared = Nothing;
  using Local = Nothing;

  int layers = 0;
  PerLayer<double> numbers = {};

  int64_t Blocks() const { return layers; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared&, Local&) const {
    if (at.thread != 0) return;
    double* out = numbers.at[at.block];
    int best = 0;
    double least = HUGE_VAL;
    for (int i = 0; i < kAwqRatios; ++i) {
      // As on the host: a negative loss is rounding.
      double loss = out[kSearchLosses + 2 * i];
      if (loss < 0) loss = 0;
      if (loss < least) {
        least = loss;
        best = i;
      }
    }
    out[kBestRatio] = best;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_AWQ_KERNELS_H_
