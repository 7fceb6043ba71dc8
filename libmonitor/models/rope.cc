#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/pow.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/where.h"

namespace ptqwatch::internal {
namespace {

// Slows down waves that the original context does not hold low_freq_factor times, leaves alone
// those that it holds high_freq_factor times, and blends in between (Llama 3.1).
at::Tensor Llama3Frequencies(const RopeConfig& rope, const at::Tensor& frequencies) {
  const auto context = static_cast<double>(rope.original_context);
  // A number over a tensor is rounded twice, as in Python.
  const at::Tensor length = frequencies.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor is_long = length > context / rope.low_freq_factor;
  const at::Tensor is_short = length < context / rope.high_freq_factor;
  const at::Tensor scaled = at::where(is_long, frequencies / rope.factor, frequencies);
  const at::Tensor blend = (length.reciprocal() * context - rope.low_freq_factor) /
                           (rope.high_freq_factor - rope.low_freq_factor);
  const at::Tensor blended = (1 - blend) * scaled / rope.factor + blend * scaled;
  return at::where(is_long.logical_or(is_short), scaled, blended);
}

// The pair of dimensions that turns `turns` times in the original context.
double PairThatTurns(const RopeConfig& rope, double turns) {
  return static_cast<double>(rope.dims) *
         std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

// Slows down pairs that turn less than beta_slow times in the original context, leaves alone those
// that turn more than beta_fast times, and blends in between (YaRN, arXiv:2309.00071).
at::Tensor YarnFrequencies(const RopeConfig& rope, const at::Tensor& lengths) {
  double low = PairThatTurns(rope, rope.beta_fast);
  double high = PairThatTurns(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.dims - 1));
  if (high == low) high += 0.001;
  const at::Tensor pairs = at::arange(rope.dims / 2, at::kFloat);
  const at::Tensor kept = 1 - ((pairs - low) / (high - low)).clamp(0, 1);
  return (lengths * rope.factor).reciprocal() * (1 - kept) + lengths.reciprocal() * kept;
}

// Each pair is slowed down by a factor of its own (LongRoPE, arXiv:2402.13753).
at::Tensor LongRopeFrequencies(const RopeConfig& rope, const at::Tensor& lengths,
                               int64_t positions) {
  const bool is_long = positions > rope.original_context;
  const at::Tensor factors =
      at::tensor(is_long ? rope.long_factors : rope.short_factors, at::kFloat);
  return (factors * lengths).reciprocal();
}

at::Tensor Frequencies(const RopeConfig& rope, int64_t positions) {
  const at::Tensor exponents =
      at::arange(0, rope.dims, 2, at::kFloat) / static_cast<double>(rope.dims);
  const at::Tensor lengths = at::pow(at::Scalar(rope.theta), exponents);
  if (rope.scaling == RopeScaling::kYarn) return YarnFrequencies(rope, lengths);
  if (rope.scaling == RopeScaling::kLongRope) return LongRopeFrequencies(rope, lengths, positions);
  const at::Tensor frequencies = lengths.reciprocal();
  if (rope.scaling == RopeScaling::kLinear) return frequencies / rope.factor;
  if (rope.scaling == RopeScaling::kLlama3) return Llama3Frequencies(rope, frequencies);
  return frequencies;
}

at::Tensor RotateHalf(const at::Tensor& x, bool interleaved) {
  if (interleaved) {
    return at::stack({-x.slice(-1, 1, std::nullopt, 2), x.slice(-1, 0, std::nullopt, 2)}, -1)
        .flatten(-2);
  }
  const int64_t half = x.size(-1) / 2;
  return at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
}

}  // namespace

RopeTables MakeRopeTables(const RopeConfig& rope, int64_t positions) {
  at::NoGradGuard no_grad;
  const at::Tensor angles =
      at::arange(positions, at::kFloat).unsqueeze(1) * Frequencies(rope, positions).unsqueeze(0);
  const at::Tensor twice = at::cat({angles, angles}, -1);
  RopeTables tables{.cosine = twice.cos(), .sine = twice.sin(), .interleaved = rope.interleaved};
  if (rope.attention_factor != 1) {
    tables.cosine *= rope.attention_factor;
    tables.sine *= rope.attention_factor;
  }
  if (rope.interleaved) {
    for (at::Tensor* table : {&tables.cosine, &tables.sine}) {
      *table = table->narrow(-1, 0, angles.size(-1)).repeat_interleave(2, -1);
    }
  }
  return tables;
}

at::Tensor Rotate(const at::Tensor& heads, const RopeTables& tables) {
  const int64_t rotated = tables.cosine.size(-1);
  const int64_t rest = heads.size(-1) - rotated;
  const at::Tensor x = heads.narrow(-1, 0, rotated);
  const at::Tensor turned = x * tables.cosine + RotateHalf(x, tables.interleaved) * tables.sine;
  return rest == 0 ? turned : at::cat({turned, heads.narrow(-1, rotated, rest)}, -1);
}

}  // namespace ptqwatch::internal
