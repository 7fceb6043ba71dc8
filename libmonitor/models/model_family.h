#ifndef PTQWATCH_MODELS_MODEL_FAMILY_H_
#define PTQWATCH_MODELS_MODEL_FAMILY_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// Whether matrices have biases.
enum class BiasRule { kNever, kAlways, kAsConfigured };

/// Which layers have a sliding window if the config has no layer_types.
enum class WindowRule {
  kNone,        ///< none, whatever layer_types says
  kLastLayers,  ///< from max_window_layers on, if use_sliding_window
  kNoPeLayers,  ///< those without positions, if use_sliding_window
  kPattern,     ///< all but the last of each window_period
  kAll,         ///< all, if sliding_window is not null; layer_types may not say otherwise
  kAllIfUsed,   ///< same, but only if use_sliding_window
  kInTurns,     ///< every other one, from the first to max_window_layers, if use_sliding_window
};

/// Where config.json has the sizes.
struct SizeKeys {
  std::string_view hidden = "hidden_size";
  std::string_view blocks = "num_hidden_layers";
  std::string_view heads = "num_attention_heads";
  std::string_view context = "max_position_embeddings";
  std::string_view intermediate = "intermediate_size";
};

/// The parts of a family of mixtures of experts that its config may set.
struct MixtureFamily {
  int64_t experts = 0;  ///< default of num_experts; 0: the family has no mixtures
  int64_t chosen = 0;   ///< default of num_experts_per_tok
  std::string_view intermediate_key = "intermediate_size";
  int64_t intermediate = 0;  ///< its default; 0: it has none
  RouterKind router = RouterKind::kSoftmaxOfAll;
  bool normalized = false;      ///< default of norm_topk_prob
  bool normalized_key = false;  ///< reads norm_topk_prob
  bool clamped = false;         ///< has ClampedGate
  bool some_layers = false;     ///< reads decoder_sparse_step and mlp_only_layers
  SharedExpert shared = SharedExpert::kNone;
  std::string_view shared_key = {};  ///< of its intermediate size
  int64_t shared_intermediate = 0;   ///< its default
};

/// A row of the table of families: what model_type stands for, and the defaults of the family's
/// class in transformers 5.24 for keys that config.json may leave out.
struct ModelFamily {
  std::string_view model_type;
  NormKind norm = NormKind::kRms;
  Residual residual = Residual::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  bool rotates_first = false;
  bool gated = true;
  bool fused_gate_up = false;
  QkvLayout qkv = QkvLayout::kSeparate;
  bool equal_heads = false;  ///< as many of keys as of queries, together as wide as `hidden`
  BiasRule qkv_bias = BiasRule::kAsConfigured;
  BiasRule output_bias = BiasRule::kAsConfigured;
  BiasRule mlp_bias = BiasRule::kNever;
  bool transposed = false;
  bool clips_qkv = false;
  bool sinks = false;
  bool multipliers = false;         ///< reads embedding_multiplier and the like
  bool embedding_by_width = false;  ///< the embedding is multiplied by the root of its width
  bool layer_scales = false;        ///< reads scale_attn_weights and the like
  bool skips_rope = false;          ///< reads no_rope_layers
  bool rope_of_layer_type = false;  ///< scaling is for layers without a window only
  double local_theta = 0;           ///< of layers with a window: rope_local_base_freq; 0: theta
  bool interleaved_rope = false;
  bool ntk_rope = false;     ///< knows the type "dynamic" with a fixed alpha
  bool phi3_rope = false;    ///< its other names for longrope, and where it looks first
  bool llama3_rope = false;  ///< Llama 3's scaling, unless the config has its own
  bool yarn_rope = false;    ///< gpt-oss's scaling, unless the config has its own
  WindowRule windows = WindowRule::kNone;

  std::string_view eps_key = "rms_norm_eps";  ///< "": not configurable
  double eps = 1e-6;
  std::string_view theta_key = "rope_theta";
  double theta = 1e4;
  std::string_view rotary_key = {};  ///< the key of the part of a head that is rotated
  double rotary_part = 1;
  int64_t original_context = 0;  ///< 0: that of the parameters, or the context
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  bool gelu_is_tanh = false;     ///< "gelu" means "gelu_pytorch_tanh"
  int64_t query_scalar = 0;      ///< default of query_pre_attn_scalar; 0: head_dim
  double attention_softcap = 0;  ///< default of attn_logit_softcapping; 0: not read
  bool reads_logits_softcap = false;
  double logits_softcap = 0;  ///< default of final_logit_softcapping; 0: none
  SizeKeys sizes = {};
  int64_t widening = 0;        ///< intermediate / hidden unless the config has it; 0: it must
  int64_t key_heads = 0;       ///< 0: as many as heads
  int64_t head_dim = 0;        ///< 0: hidden / heads
  bool null_head_dim = false;  ///< an explicit null means hidden / heads, too
  int64_t window = 0;
  int64_t window_period = 0;                ///< of kPattern
  std::string_view window_period_key = {};  ///< "": not configurable
  std::string_view attention_bias_key = "attention_bias";
  std::string_view mlp_bias_key = "mlp_bias";
  bool attention_bias_default = false;
  bool mlp_bias_default = false;
  bool tied_head = false;
  bool mxfp4 = false;  ///< experts may be stored so
  MixtureFamily mixture = {};
  std::array<std::string_view, 2> unsupported = {};  ///< keys that must be absent, null or false
  TensorNames names = {};
};

absl::Span<const ModelFamily> ModelFamilies();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_MODEL_FAMILY_H_
