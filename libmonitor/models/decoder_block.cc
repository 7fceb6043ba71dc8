#include <cstddef>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/zeros_like.h"
#include "models/attention.h"
#include "models/decoder.h"
#include "models/mixture.h"
#include "models/mlp.h"
#include "models/norms.h"
#include "models/rope.h"

namespace ptqwatch::internal {
namespace {

// A product with 1 is left out.
at::Tensor Times(const at::Tensor& x, double factor) { return factor == 1 ? x : x * factor; }

// [B, T, heads * dim] -> [B, T, heads, dim].
at::Tensor SplitHeads(const at::Tensor& x, int64_t dim) {
  return x.reshape({x.size(0), x.size(1), -1, dim});
}

}  // namespace

at::Tensor DecoderBlock::Norm(const at::Tensor& x, BlockVector weight,
                              std::optional<BlockVector> bias) const {
  return Normalize(config_->norm, x, Vector(weight), bias ? Vector(*bias) : at::Tensor(),
                   config_->norm_eps);
}

at::Tensor DecoderBlock::AttentionNorm(const at::Tensor& x) const {
  return Norm(x, BlockVector::kAttentionNorm, BlockVector::kAttentionNormBias);
}

at::Tensor DecoderBlock::MlpNorm(const at::Tensor& x) const {
  return Norm(x, BlockVector::kMlpNorm, BlockVector::kMlpNormBias);
}

DecoderBlock::Heads DecoderBlock::MakeHeads(const at::Tensor& x, ApplyLinear apply) const {
  const ModelConfig& model = *config_;
  if (model.qkv == QkvLayout::kByHead) {
    const std::vector<at::Tensor> parts = SplitHeads(apply(0, x), 3 * model.head_dim).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  Heads heads;
  if (model.qkv == QkvLayout::kByKind) {
    const int64_t queries = model.heads * model.head_dim, keys = model.key_heads * model.head_dim;
    const at::Tensor all = apply(0, x);
    heads = {all.narrow(-1, 0, queries), all.narrow(-1, queries, keys),
             all.narrow(-1, queries + keys, keys)};
  } else {
    for (size_t i = 0; i < 3; ++i) heads[i] = apply(i, x);
  }
  if (model.qk_norm == QkNorm::kProjection) NormQueriesAndKeys(heads);
  if (model.clip_qkv) {
    for (at::Tensor& part : heads) part = part.clamp(-*model.clip_qkv, *model.clip_qkv);
  }
  for (at::Tensor& part : heads) part = SplitHeads(part, model.head_dim);
  if (model.qk_norm == QkNorm::kHead && !model.rotates_first) NormQueriesAndKeys(heads);
  return heads;
}

void DecoderBlock::NormQueriesAndKeys(Heads& heads) const {
  heads[0] = Norm(heads[0], BlockVector::kQNorm);
  heads[1] = Norm(heads[1], BlockVector::kKNorm);
}

at::Tensor DecoderBlock::Attention(const at::Tensor& x, ApplyLinear apply) const {
  Heads heads = MakeHeads(x, apply);
  for (at::Tensor& part : heads) part = part.transpose(1, 2);
  if (layer_.rope) {
    const RopeTables tables = MakeRopeTables(*layer_.rope, x.size(1));
    heads[0] = Rotate(heads[0], tables);
    heads[1] = Rotate(heads[1], tables);
  }
  if (config_->qk_norm == QkNorm::kHead && config_->rotates_first) NormQueriesAndKeys(heads);
  const size_t output = config_->qkv == QkvLayout::kSeparate ? 3 : 1;
  const ScoreConfig scores = {.scale = layer_.attention_scale,
                              .window = layer_.window,
                              .softcap = config_->attention_softcap,
                              .sinks = Vector(BlockVector::kSinks)};
  return apply(output, CausalAttention(heads[0], heads[1], heads[2], scores));
}

at::Tensor DecoderBlock::InsideExpert(const at::Tensor& gate_up, int64_t expert) const {
  if (const std::optional<ClampedGate>& clamped = config_->mixture->clamped) {
    const at::Tensor bias = Vector(BlockVector::kGateUpBias).select(0, expert);
    return ApplyClampedGate(*clamped, gate_up + bias);
  }
  const std::vector<at::Tensor> parts = gate_up.chunk(2, -1);
  return Activate(config_->activation, parts[0], {}) * parts[1];
}

at::Tensor DecoderBlock::SharedOutput(const at::Tensor& rows, size_t linear,
                                      ApplyLinear apply) const {
  if (config_->mixture->shared == SharedExpert::kFused) {
    const std::vector<at::Tensor> parts = apply(linear, rows).chunk(2, -1);
    return apply(linear + 1, Activate(config_->activation, parts[0], {}) * parts[1]);
  }
  const at::Tensor gate = Activate(config_->activation, apply(linear, rows), {});
  const at::Tensor inside = gate * apply(linear + 1, rows);
  const at::Tensor share = apply(linear + 2, rows).sigmoid();
  return share * apply(linear + 3, inside);
}

at::Tensor DecoderBlock::Mixture(const at::Tensor& x, ApplyLinear apply) const {
  const int64_t experts = config_->mixture->experts;
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const Routing routing(*config_->mixture, at::linear(rows, Vector(BlockVector::kRouter),
                                                      Vector(BlockVector::kRouterBias)));
  at::Tensor sum = at::zeros_like(rows);
  size_t linear = weights_.size() - 2 * static_cast<size_t>(experts);
  at::Tensor shared;
  if (config_->mixture->shared != SharedExpert::kNone) {
    const size_t linears = config_->mixture->shared == SharedExpert::kGated ? 4 : 2;
    shared = SharedOutput(rows, linear - linears, apply);
  }
  for (int64_t expert = 0; expert < experts; ++expert, linear += 2) {
    const at::Tensor own = routing.RowsOf(expert);
    const at::Tensor inside = InsideExpert(apply(linear, rows.index_select(0, own)), expert);
    at::Tensor outputs = apply(linear + 1, inside);
    const at::Tensor& bias = Vector(BlockVector::kDownBias);
    if (bias.defined()) outputs = outputs + bias.select(0, expert);
    sum.index_add_(0, own, outputs * routing.WeightsOf(expert));
  }
  if (shared.defined()) sum = sum + shared;
  return sum.view(x.sizes());
}

at::Tensor DecoderBlock::Mlp(const at::Tensor& x, ApplyLinear apply) const {
  if (layer_.mixture) return Mixture(x, apply);
  const XieluTensors xielu = {Vector(BlockVector::kAlphaP), Vector(BlockVector::kAlphaN),
                              Vector(BlockVector::kBeta), Vector(BlockVector::kEps)};
  const auto activate = [&](const at::Tensor& y) {
    return Activate(config_->activation, y, xielu);
  };
  const size_t down = weights_.size() - 1;
  if (!config_->gated) return apply(down, activate(apply(down - 1, x)));
  if (config_->fused_gate_up) {
    const std::vector<at::Tensor> parts = apply(down - 1, x).chunk(2, -1);
    return apply(down, activate(parts[0]) * parts[1]);
  }
  const at::Tensor gate = activate(apply(down - 2, x));
  return apply(down, gate * apply(down - 1, x));
}

at::Tensor DecoderBlock::Forward(const at::Tensor& hidden, ApplyLinear apply) const {
  const double factor = config_->residual_multiplier;
  switch (config_->residual) {
    case Residual::kParallel: {
      const at::Tensor attention = Attention(AttentionNorm(hidden), apply);
      return Mlp(MlpNorm(hidden), apply) + attention + hidden;
    }
    case Residual::kPost: {
      const at::Tensor middle = hidden + AttentionNorm(Attention(hidden, apply));
      return middle + MlpNorm(Mlp(middle, apply));
    }
    case Residual::kSandwich: {
      const at::Tensor attention = Attention(AttentionNorm(hidden), apply);
      const at::Tensor middle = hidden + Norm(attention, BlockVector::kAttentionPostNorm);
      return middle + Norm(Mlp(MlpNorm(middle), apply), BlockVector::kMlpPostNorm);
    }
    case Residual::kPre:
      break;
  }
  const at::Tensor middle = hidden + Times(Attention(AttentionNorm(hidden), apply), factor);
  return middle + Times(Mlp(MlpNorm(middle), apply), factor);
}

at::Tensor DecoderBlock::Forward(const at::Tensor& hidden) const {
  return Forward(hidden, [this](size_t index, const at::Tensor& x) {
    return at::linear(x, weights_[index], biases_[index]);
  });
}

}  // namespace ptqwatch::internal
