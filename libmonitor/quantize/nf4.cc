#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "quantize/kernels/scale_dtype.h"
#include "quantize/layer.h"
#include "quantize/methods.h"

namespace ptqwatch {
namespace {

constexpr std::array<float, 16> kLevels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
constexpr uint8_t kZeroCode = 7;

constexpr std::array<float, 15> Midpoints() {
  std::array<float, 15> midpoints{};
  for (size_t i = 0; i < midpoints.size(); ++i) {
    midpoints[i] = static_cast<float>(
        (static_cast<double>(kLevels[i]) + static_cast<double>(kLevels[i + 1])) / 2);
  }
  return midpoints;
}
constexpr std::array<float, 15> kMidpoints = Midpoints();

// A code is the number of midpoints that lie strictly below w / absmax.
void EncodeBlock(const float* w, int64_t count, float absmax, uint8_t* codes) {
  if (absmax == 0) {
    std::fill_n(codes, count, kZeroCode);
    return;
  }
  float x[kNf4Block];
  // Tiny numbers have no finite reciprocal.
  const float inverse = 1.0f / absmax;
  const bool divide = !std::isfinite(inverse);
  for (int64_t i = 0; i < count; ++i) {
    x[i] = std::clamp(divide ? w[i] / absmax : w[i] * inverse, -1.0f, 1.0f);
  }
  std::fill_n(codes, count, uint8_t{0});
  for (const float midpoint : kMidpoints) {
    for (int64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<uint8_t>(codes[i] + (x[i] > midpoint));
    }
  }
}

}  // namespace

const std::array<float, 16>& Nf4Levels() { return kLevels; }

namespace internal {
namespace {

absl::StatusOr<QuantizedWeight> Nf4(const Layer& layer, const ExecutionContext& context) {
  const int64_t size = layer.size();
  const int64_t blocks = (size + kNf4Block - 1) / kNf4Block;
  QuantizedWeight result;
  ReserveWeights(layer, &result);
  result.codes.resize(static_cast<size_t>(size));
  result.dequantized.resize(static_cast<size_t>(size));
  result.scale.resize(static_cast<size_t>(blocks));
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      blocks, kNf4Block,
      [&](int64_t b) {
        const int64_t begin = b * kNf4Block;
        const int64_t count = std::min(kNf4Block, size - begin);
        const float* w = layer.weight.data + begin;
        float largest = 0;
        for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(w[i]));
        const float absmax = RoundScale(largest, layer.spec.scale_dtype);
        result.scale[static_cast<size_t>(b)] = absmax;
        uint8_t* codes = result.codes.data() + begin;
        EncodeBlock(w, count, absmax, codes);
        float* out = result.dequantized.data() + begin;
        for (int64_t i = 0; i < count; ++i) out[i] = kLevels[codes[i]] * absmax;
      },
      context));
  if (!std::all_of(result.scale.begin(), result.scale.end(),
                   [](float absmax) { return std::isfinite(absmax); })) {
    return TooLargeForGrid(layer.spec);
  }
  PTQWATCH_ASSIGN_OR_RETURN(result.loss, LayerLoss(layer, result.dequantized, context));
  result.rtn_loss = result.loss;
  PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  return result;
}

}  // namespace

const Method kNf4Method = {
    .bits = 4,
    .group_size = kNf4Block,
    .bytes = [](int64_t rows, int64_t cols, const QuantizerSpec&) { return rows * cols / 16; },
    .quantize = Nf4,
};

}  // namespace internal
}  // namespace ptqwatch
