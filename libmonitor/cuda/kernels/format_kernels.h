#ifndef PTQWATCH_CUDA_KERNELS_FORMAT_KERNELS_H_
#define PTQWATCH_CUDA_KERNELS_FORMAT_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/grid_kernels.h"
#include "cuda/kernels/kernel.h"
#include "cuda/kernels/scalars.h"

namespace ptqwatch::internal {

/// The levels of NF4 and the midpoints between them.
struct Nf4Table {
  float level[16];
  float midpoint[15];
};

/// NF4, as in quantize/nf4.cc. A block of threads handles two blocks of 64 weights. Each output
/// except `absmax` may be null.
struct RoundNf4 {
  static constexpr int kThreads = 128;
  static constexpr int kPhases = 2;
  static constexpr int kBlock = 64;
  static_assert(kBlock == kNf4Block);
  struct Shared {
    float magnitude[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;
  Nf4Table table = {};
  PerLayer<float> absmax = {};  ///< [ceil(rows * cols / 64)]
  PerLayer<uint8_t> codes = {};
  PerLayer<float> decoded = {};
  Strided<float> error = {};

  PTQWATCH_HOST_DEVICE int64_t BlocksPerLayer() const { return CeilDiv(source.size(), kThreads); }
  int64_t Blocks() const { return layers * BlocksPerLayer(); }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / BlocksPerLayer();
    const int64_t to = at.block % BlocksPerLayer() * kThreads + at.thread;
    const float w = to < source.size() ? source.weight.at[layer][to] : 0.0f;
    if constexpr (kPhase == 0) {
      shared.magnitude[at.thread] = fabsf(w);
    } else if (to < source.size()) {
      const int begin = at.thread / kBlock * kBlock;
      float largest = 0;
      for (int i = begin; i < begin + kBlock; ++i) {
        largest = shared.magnitude[i] > largest ? shared.magnitude[i] : largest;
      }
      const float bound = RoundToDtype(largest, scale_dtype);
      if (at.thread == begin) absmax.at[layer][to / kBlock] = bound;
      const int code = Code(w, bound);
      const float value = table.level[code] * bound;
      if (codes.at[layer] != nullptr) codes.at[layer][to] = static_cast<uint8_t>(code);
      if (decoded.at[layer] != nullptr) decoded.at[layer][to] = value;
      if (error.first != nullptr) error.at(layer)[to] = w - value;
    }
  }

 private:
  PTQWATCH_HOST_DEVICE int Code(float w, float bound) const {
    if (bound == 0) return 7;
    const float inverse = 1.0f / bound;
    float x = IsFiniteBits(inverse) ? w * inverse : w / bound;
    x = x < -1.0f ? -1.0f : (x > 1.0f ? 1.0f : x);
    int code = 0;
    for (int i = 0; i < 15; ++i) code += x > table.midpoint[i] ? 1 : 0;
    return code;
  }
};

/// LLM.int8, as in quantize/llm_int8.cc. One block per row. Each output except `scale` may be null.
struct RoundInt8 {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  struct Shared {
    float magnitude[kThreads];
  };
  using Local = Nothing;

  int layers = 0;
  GridSource source = {};
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;
  /// If at[layer] is not null, columns whose number is at least `threshold` keep their weights.
  PerLayer<const float> abs_max = {};
  double threshold = 0;
  PerLayer<float> scale = {};  ///< [rows]
  PerLayer<float> zero = {};   ///< [rows]
  PerLayer<uint8_t> codes = {};
  PerLayer<float> decoded = {};
  Strided<float> error = {};

  int64_t Blocks() const { return layers * source.rows; }

  template <int kPhase>
  PTQWATCH_HOST_DEVICE void Run(Place at, Shared& shared, Local&) const {
    const int64_t layer = at.block / source.rows;
    const int64_t row = at.block % source.rows;
    const float* w = source.weight.at[layer] + row * source.cols;
    float largest = 0;
    if constexpr (kPhase == 0) {
      for (int64_t c = at.thread; c < source.cols; c += kThreads) {
        largest = fabsf(w[c]) > largest ? fabsf(w[c]) : largest;
      }
      shared.magnitude[at.thread] = largest;
    } else {
      for (int i = 0; i < kThreads; ++i) {
        largest = shared.magnitude[i] > largest ? shared.magnitude[i] : largest;
      }
      const float bound = RoundToDtype(largest, scale_dtype);
      if (at.thread == 0) {
        scale.at[layer][row] = bound / 127.0f;
        zero.at[layer][row] = 128;
      }
      for (int64_t c = at.thread; c < source.cols; c += kThreads) {
        Write(layer, row * source.cols + c, c, w[c], bound);
      }
    }
  }

 private:
  PTQWATCH_HOST_DEVICE void Write(int64_t layer, int64_t to, int64_t col, float w,
                                  float bound) const {
    const int code = Code(w, bound);
    float value =
        static_cast<float>(static_cast<double>(code) * static_cast<double>(bound) / 127.0);
    if (abs_max.at[layer] != nullptr && static_cast<double>(abs_max.at[layer][col]) >= threshold) {
      value = w;
    }
    if (codes.at[layer] != nullptr) codes.at[layer][to] = static_cast<uint8_t>(code + 128);
    if (decoded.at[layer] != nullptr) decoded.at[layer][to] = value;
    if (error.first != nullptr) error.at(layer)[to] = w - value;
  }
  PTQWATCH_HOST_DEVICE static int Code(float w, float bound) {
    if (bound == 0 || !IsFiniteBits(bound)) return 0;
    const float steps = 127.0f / bound;
    const float x = rintf(IsFiniteBits(steps) ? w * steps : w / bound * 127.0f);
    if (!(x > -127.0f)) return -127;
    return x < 127.0f ? static_cast<int>(x) : 127;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_FORMAT_KERNELS_H_
