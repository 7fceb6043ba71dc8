#include <cstddef>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "models/attention.h"
#include "models/decoder.h"
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

at::Tensor DecoderBlock::AttentionNorm(const at::Tensor& x) const {
  return Normalize(config_->norm, x, Vector(BlockVector::kAttentionNorm),
                   Vector(BlockVector::kAttentionNormBias), config_->norm_eps);
}

at::Tensor DecoderBlock::MlpNorm(const at::Tensor& x) const {
  return Normalize(config_->norm, x, Vector(BlockVector::kMlpNorm),
                   Vector(BlockVector::kMlpNormBias), config_->norm_eps);
}

at::Tensor DecoderBlock::Attention(const at::Tensor& x, ApplyLinear apply) const {
  const ModelConfig& model = *config_;
  size_t linear = 0;
  at::Tensor q, k, v;
  if (model.fused_qkv) {
    const std::vector<at::Tensor> parts =
        SplitHeads(apply(linear++, x), 3 * model.head_dim).chunk(3, -1);
    q = parts[0];
    k = parts[1];
    v = parts[2];
  } else {
    q = apply(linear++, x);
    k = apply(linear++, x);
    v = apply(linear++, x);
    if (model.clip_qkv) {
      for (at::Tensor* part : {&q, &k, &v}) *part = part->clamp(-*model.clip_qkv, *model.clip_qkv);
    }
    if (model.qk_norm == QkNorm::kProjection) {
      q = RmsNorm(q, Vector(BlockVector::kQNorm), model.norm_eps);
      k = RmsNorm(k, Vector(BlockVector::kKNorm), model.norm_eps);
    }
    for (at::Tensor* part : {&q, &k, &v}) *part = SplitHeads(*part, model.head_dim);
    if (model.qk_norm == QkNorm::kHead) {
      q = RmsNorm(q, Vector(BlockVector::kQNorm), model.norm_eps);
      k = RmsNorm(k, Vector(BlockVector::kKNorm), model.norm_eps);
    }
  }
  for (at::Tensor* part : {&q, &k, &v}) *part = part->transpose(1, 2);
  if (layer_.rope) {
    const RopeTables tables = MakeRopeTables(*layer_.rope, x.size(1));
    q = Rotate(q, tables);
    k = Rotate(k, tables);
  }
  return apply(
      linear, CausalAttention(q, k, v, {.scale = layer_.attention_scale, .window = layer_.window}));
}

at::Tensor DecoderBlock::Mlp(const at::Tensor& x, ApplyLinear apply) const {
  const XieluTensors xielu = {Vector(BlockVector::kAlphaP), Vector(BlockVector::kAlphaN),
                              Vector(BlockVector::kBeta), Vector(BlockVector::kEps)};
  const size_t down = weights_.size() - 1;
  if (!config_->gated) {
    return apply(down, Activate(config_->activation, apply(down - 1, x), xielu));
  }
  const at::Tensor gate = Activate(config_->activation, apply(down - 2, x), xielu);
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
