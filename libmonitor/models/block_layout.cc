#include "models/block_layout.h"

#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelConfig& model, int64_t block)
      : model_(model),
        layer_(model.layers[static_cast<size_t>(block)]),
        prefix_(StrCat(model.names.blocks, block, ".")) {}

  BlockLayout Build() {
    AddAttention();
    if (layer_.mixture) {
      AddMixture(*model_.mixture);
    } else {
      AddMlp();
    }
    AddNorm(model_.names.attention_norm, BlockVector::kAttentionNorm,
            BlockVector::kAttentionNormBias);
    AddNorm(model_.names.mlp_norm, BlockVector::kMlpNorm, BlockVector::kMlpNormBias);
    if (model_.residual == Residual::kSandwich) {
      AddVector(BlockVector::kAttentionPostNorm,
                StrCat(model_.names.attention_post_norm, ".weight"), {model_.hidden});
      AddVector(BlockVector::kMlpPostNorm, StrCat(model_.names.mlp_post_norm, ".weight"),
                {model_.hidden});
    }
    return std::move(layout_);
  }

 private:
  void AddLinear(std::string_view part, std::string_view name, int64_t outputs, int64_t inputs,
                 bool biased) {
    const std::string module = StrCat(prefix_, part, name);
    layout_.linears.push_back({.name = StrCat(module, ".weight"),
                               .outputs = outputs,
                               .inputs = inputs,
                               .input = input_,
                               .bias = biased ? StrCat(module, ".bias") : "",
                               .transposed = model_.transposed});
  }
  void AddVector(BlockVector which, std::string name, std::vector<int64_t> shape) {
    layout_.vectors[static_cast<size_t>(which)] = {StrCat(prefix_, name), std::move(shape)};
  }

  void AddAttention() {
    const std::string_view part = model_.names.attention;
    const int64_t queries = model_.heads * model_.head_dim;
    const int64_t keys = model_.key_heads * model_.head_dim;
    const bool biased = model_.qkv_bias;
    if (model_.qkv != QkvLayout::kSeparate) {
      AddLinear(part, model_.names.qkv, queries + 2 * keys, model_.hidden, biased);
    } else {
      AddLinear(part, "q_proj", queries, model_.hidden, biased);
      AddLinear(part, "k_proj", keys, model_.hidden, biased);
      AddLinear(part, "v_proj", keys, model_.hidden, biased);
    }
    ++input_;
    AddLinear(part, model_.names.output, model_.hidden, queries, model_.output_bias);
    ++input_;
    if (model_.sinks) AddVector(BlockVector::kSinks, StrCat(part, "sinks"), {model_.heads});
    if (model_.qk_norm == QkNorm::kNone) return;
    const bool whole = model_.qk_norm == QkNorm::kProjection;
    AddVector(BlockVector::kQNorm, StrCat(part, model_.names.q_norm, ".weight"),
              {whole ? queries : model_.head_dim});
    AddVector(BlockVector::kKNorm, StrCat(part, model_.names.k_norm, ".weight"),
              {whole ? keys : model_.head_dim});
  }

  void AddMlp() {
    const bool biased = model_.mlp_bias;
    const int64_t inside = model_.intermediate;
    if (model_.fused_gate_up) {
      AddLinear("mlp.", model_.names.gate_up, 2 * inside, model_.hidden, biased);
    } else {
      if (model_.gated) AddLinear("mlp.", "gate_proj", inside, model_.hidden, biased);
      AddLinear("mlp.", model_.names.up, inside, model_.hidden, biased);
    }
    ++input_;
    AddLinear("mlp.", model_.names.down, model_.hidden, inside, biased);
    if (model_.activation != Activation::kXielu) return;
    AddVector(BlockVector::kAlphaP, "mlp.act_fn.alpha_p", {1});
    AddVector(BlockVector::kAlphaN, "mlp.act_fn.alpha_n", {1});
    AddVector(BlockVector::kBeta, "mlp.act_fn.beta", {});
    AddVector(BlockVector::kEps, "mlp.act_fn.eps", {});
  }

  void AddMixture(const MixtureConfig& mixture) {
    const std::string_view part = model_.names.mixture;
    const std::string router = StrCat(part, model_.names.router);
    AddVector(BlockVector::kRouter, StrCat(router, ".weight"), {mixture.experts, model_.hidden});
    if (mixture.clamped) {
      AddVector(BlockVector::kRouterBias, StrCat(router, ".bias"), {mixture.experts});
      AddVector(BlockVector::kGateUpBias, StrCat(part, "experts.gate_up_proj_bias"),
                {mixture.experts, 2 * mixture.intermediate});
      AddVector(BlockVector::kDownBias, StrCat(part, "experts.down_proj_bias"),
                {mixture.experts, model_.hidden});
    }
    AddSharedExpert(mixture);
    for (int64_t expert = 0; expert < mixture.experts; ++expert) {
      AddExpert("gate_up_proj", expert, 2 * mixture.intermediate, model_.hidden);
      AddExpert("down_proj", expert, model_.hidden, mixture.intermediate);
    }
  }

  // The linears of one input follow each other.
  void AddSharedExpert(const MixtureConfig& mixture) {
    const int64_t inside = mixture.shared_intermediate;
    if (mixture.shared == SharedExpert::kGated) {
      AddLinear("mlp.shared_expert.", "gate_proj", inside, model_.hidden, false);
      AddLinear("mlp.shared_expert.", "up_proj", inside, model_.hidden, false);
      AddLinear("mlp.", "shared_expert_gate", 1, model_.hidden, false);
      ++input_;
      AddLinear("mlp.shared_expert.", "down_proj", model_.hidden, inside, false);
      ++input_;
    } else if (mixture.shared == SharedExpert::kFused) {
      AddLinear("shared_mlp.", "input_linear", 2 * inside, model_.hidden, false);
      ++input_;
      AddLinear("shared_mlp.", "output_linear", model_.hidden, inside, false);
      ++input_;
    }
  }

  void AddExpert(std::string_view name, int64_t expert, int64_t outputs, int64_t inputs) {
    const int64_t experts = model_.mixture->experts;
    const std::string stack = StrCat(prefix_, model_.names.mixture, "experts.", name);
    layout_.linears.push_back({.name = experts > 1 ? StrCat(stack, "[", expert, "]") : stack,
                               .outputs = outputs,
                               .inputs = inputs,
                               .input = input_++,
                               .transposed = model_.mixture->clamped.has_value(),
                               .stack = stack,
                               .experts = experts,
                               .expert = expert});
  }

  void AddNorm(std::string_view name, BlockVector weight, BlockVector bias) {
    if (model_.norm == NormKind::kPlainLayerNorm) return;
    AddVector(weight, StrCat(name, ".weight"), {model_.hidden});
    if (model_.norm == NormKind::kLayerNorm)
      AddVector(bias, StrCat(name, ".bias"), {model_.hidden});
  }

  const ModelConfig& model_;
  const LayerConfig& layer_;
  const std::string prefix_;
  int input_ = 0;
  BlockLayout layout_;
};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

BlockLayout LayoutOf(const ModelConfig& model, int64_t block) {
  return LayoutBuilder(model, block).Build();
}

std::vector<NamedShape> BlockLayout::Tensors() const {
  std::vector<NamedShape> tensors;
  for (const DecoderLinear& linear : linears) {
    std::vector<int64_t> shape = {linear.outputs, linear.inputs};
    if (linear.transposed) std::swap(shape[0], shape[1]);
    if (linear.expert > 0) continue;  // the tensor of the stack's first
    if (!linear.stack.empty()) shape.insert(shape.begin(), linear.experts);
    tensors.push_back({linear.tensor(), std::move(shape)});
    if (!linear.bias.empty()) tensors.push_back({linear.bias, {linear.outputs}});
  }
  for (const NamedShape& vector : vectors) {
    if (!vector.name.empty()) tensors.push_back(vector);
  }
  return tensors;
}

OuterLayout OuterLayoutOf(const ModelConfig& model) {
  const TensorNames& names = model.names;
  OuterLayout outer;
  outer.embedding = {std::string(names.embedding), {model.vocabulary, model.hidden}};
  if (!names.positions.empty()) {
    outer.positions = {std::string(names.positions), {model.context, model.hidden}};
  }
  if (model.norm != NormKind::kPlainLayerNorm) {
    outer.final_norm = {StrCat(names.final_norm, ".weight"), {model.hidden}};
  }
  if (model.norm == NormKind::kLayerNorm) {
    outer.final_norm_bias = {StrCat(names.final_norm, ".bias"), {model.hidden}};
  }
  if (!model.tied_head) outer.head = {std::string(names.head), {model.vocabulary, model.hidden}};
  return outer;
}

bool IsIgnoredTensor(const ModelConfig& model, std::string_view name) {
  if (EndsWith(name, ".rotary_emb.inv_freq")) return true;
  const bool has_masks = model.qkv == QkvLayout::kByHead || !model.names.positions.empty();
  return has_masks && (EndsWith(name, StrCat(".", model.names.attention, "bias")) ||
                       EndsWith(name, StrCat(".", model.names.attention, "masked_bias")));
}

}  // namespace ptqwatch::internal
