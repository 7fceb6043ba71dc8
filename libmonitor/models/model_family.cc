#include "models/model_family.h"

namespace ptqwatch::internal {
namespace {

constexpr TensorNames kNeoxNames = {
    .embedding = "gpt_neox.embed_in.weight",
    .blocks = "gpt_neox.layers.",
    .final_norm = "gpt_neox.final_layer_norm",
    .attention = "attention.",
    .output = "dense",
    .up = "dense_h_to_4h",
    .down = "dense_4h_to_h",
    .head = "embed_out.weight",
    .other_head = "lm_head.weight",
};
constexpr TensorNames kPostNormNames = {
    .attention_norm = "post_attention_layernorm",
    .mlp_norm = "post_feedforward_layernorm",
};
constexpr TensorNames kApertusNames = {
    .attention_norm = "attention_layernorm",
    .mlp_norm = "feedforward_layernorm",
};

constexpr ModelFamily kFamilies[] = {
    {.model_type = "apertus",
     .qk_norm = QkNorm::kHead,
     .gated = false,
     .llama3_rope = true,
     .eps = 1e-5,
     .theta = 1.2e7,
     .activation = "xielu",
     .names = kApertusNames},
    {.model_type = "gpt_neox",
     .norm = NormKind::kLayerNorm,
     .residual = Residual::kParallel,
     .gated = false,
     .fused_qkv = true,
     .mlp_bias = MlpBias::kAlways,
     .eps_key = "layer_norm_eps",
     .eps = 1e-5,
     .theta_key = "rotary_emb_base",
     .rotary_key = "rotary_pct",
     .rotary_part = 0.25,
     .activation = "gelu",
     .attention_bias = true,
     .names = kNeoxNames},
    {.model_type = "llama", .mlp_bias = MlpBias::kAsConfigured},
    {.model_type = "olmo",
     .norm = NormKind::kPlainLayerNorm,
     .clips_qkv = true,
     .eps_key = {},
     .eps = 1e-5},
    {.model_type = "olmo2",
     .residual = Residual::kPost,
     .qk_norm = QkNorm::kProjection,
     .eps = 1e-5,
     .names = kPostNormNames},
    {.model_type = "olmo3",
     .residual = Residual::kPost,
     .qk_norm = QkNorm::kProjection,
     .rope_of_layer_type = true,
     .windows = WindowRule::kThreeOfFour,
     .eps = 1e-5,
     .theta = 5e5,
     .window = 4096,
     .names = kPostNormNames},
    // Qwen 3 with a biased MLP, by code of its own beside the checkpoints.
    {.model_type = "opensci",
     .qk_norm = QkNorm::kHead,
     .mlp_bias = MlpBias::kAsConfigured,
     .windows = WindowRule::kLastLayers,
     .key_heads = 32,
     .head_dim = 128,
     .window = 4096,
     .mlp_bias_default = true},
    {.model_type = "qwen3",
     .qk_norm = QkNorm::kHead,
     .mlp_bias = MlpBias::kAsConfigured,
     .windows = WindowRule::kLastLayers,
     .key_heads = 32,
     .head_dim = 128,
     .window = 4096},
    {.model_type = "smollm3",
     .mlp_bias = MlpBias::kAsConfigured,
     .skips_rope = true,
     .windows = WindowRule::kNoPeLayers,
     .theta = 2e6,
     .key_heads = 4,
     .tied_head = true},
};

}  // namespace

absl::Span<const ModelFamily> ModelFamilies() { return kFamilies; }

}  // namespace ptqwatch::internal
