#include "models/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/enum_names.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "models/config_reader.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBlocks = 10'000;
constexpr int64_t kMaxExperts = 10'000;
constexpr std::string_view kActivations[] = {"gelu", "silu", "xielu", "gelu_new",
                                             "gelu_pytorch_tanh"};
constexpr std::string_view kLayerTypes[] = {"full_attention", "sliding_attention"};

absl::StatusOr<const ModelFamily*> FindFamily(const ConfigReader& config) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string model_type, config.Text("model_type"));
  std::vector<std::string_view> known;
  for (const ModelFamily& family : ModelFamilies()) {
    if (family.model_type == model_type) return &family;
    known.push_back(family.model_type);
  }
  return config.Error("model_type",
                      StrCat("is ", Quoted(model_type), "; known are ", ListOf(known)));
}

// transformers takes the common names of sizes, too, and prefers them.
absl::Status CheckCommonNames(const ConfigReader& config, const SizeKeys& keys) {
  const SizeKeys common;
  for (const auto& [own, other] : {std::pair(keys.hidden, common.hidden),
                                   {keys.blocks, common.blocks},
                                   {keys.heads, common.heads},
                                   {keys.context, common.context}}) {
    if (own == other || !config.Has(other)) continue;
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t size, config.Size(own));
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t again, config.Size(other));
    if (size != again) return config.Error(other, StrCat("is ", again, ", but ", own, " ", size));
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const ConfigReader& config, const ModelFamily& family, ModelConfig& model) {
  const SizeKeys& keys = family.sizes;
  PTQWATCH_RETURN_IF_ERROR(CheckCommonNames(config, keys));
  PTQWATCH_ASSIGN_OR_RETURN(model.vocabulary, config.Size("vocab_size"));
  PTQWATCH_ASSIGN_OR_RETURN(model.hidden, config.Size(keys.hidden));
  std::optional<int64_t> intermediate;
  if (family.widening > 0) intermediate = family.widening * model.hidden;
  PTQWATCH_ASSIGN_OR_RETURN(model.intermediate, config.Size(keys.intermediate, intermediate));
  PTQWATCH_ASSIGN_OR_RETURN(model.blocks, config.Size(keys.blocks, std::nullopt, 1, kMaxBlocks));
  PTQWATCH_ASSIGN_OR_RETURN(model.context, config.Size(keys.context));
  return absl::OkStatus();
}

absl::Status ReadHeads(const ConfigReader& config, const ModelFamily& family, ModelConfig& model) {
  PTQWATCH_ASSIGN_OR_RETURN(model.heads, config.Size(family.sizes.heads));
  const int64_t default_key_heads = family.key_heads == 0 || config.IsNull("num_key_value_heads")
                                        ? model.heads
                                        : family.key_heads;
  PTQWATCH_ASSIGN_OR_RETURN(model.key_heads, config.Size("num_key_value_heads", default_key_heads));
  if (model.heads % model.key_heads != 0) {
    return config.Error(
        family.sizes.heads,
        StrCat("is ", model.heads, ", not a multiple of num_key_value_heads, ", model.key_heads));
  }
  const bool divided = family.head_dim == 0 || (family.null_head_dim && config.IsNull("head_dim"));
  if (!config.Has("head_dim") && divided && model.hidden % model.heads != 0) {
    return config.Error(family.sizes.hidden, StrCat("is ", model.hidden, ", not a multiple of ",
                                                    family.sizes.heads, ", ", model.heads));
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      model.head_dim,
      config.Size("head_dim", divided ? model.hidden / model.heads : family.head_dim));
  if (!family.equal_heads) return absl::OkStatus();
  if (model.key_heads != model.heads) {
    return config.WrongValue("num_key_value_heads",
                             StrCat("a ", family.model_type, " has as many as heads"));
  }
  if (model.head_dim * model.heads != model.hidden) {
    return config.WrongValue("head_dim",
                             StrCat(family.sizes.hidden, " / ", family.sizes.heads, " is needed"));
  }
  return absl::OkStatus();
}

absl::Status ReadBiases(const ConfigReader& config, const ModelFamily& family, ModelConfig& model) {
  const auto read = [&config](BiasRule rule, std::string_view key, bool fallback) {
    if (rule == BiasRule::kAsConfigured) return config.Flag(key, fallback);
    return absl::StatusOr<bool>(rule == BiasRule::kAlways);
  };
  const bool attention = family.attention_bias_default;
  const std::string_view key = family.attention_bias_key;
  PTQWATCH_ASSIGN_OR_RETURN(model.qkv_bias, read(family.qkv_bias, key, attention));
  PTQWATCH_ASSIGN_OR_RETURN(model.output_bias, read(family.output_bias, key, attention));
  PTQWATCH_ASSIGN_OR_RETURN(model.mlp_bias,
                            read(family.mlp_bias, family.mlp_bias_key, family.mlp_bias_default));
  return absl::OkStatus();
}

// A bound that an explicit null takes away. `fallback`: 0 for none.
absl::StatusOr<std::optional<double>> ReadSoftcap(const ConfigReader& config, std::string_view key,
                                                  double fallback) {
  if (config.IsNull(key) || (fallback == 0 && !config.Has(key))) return std::nullopt;
  return config.Positive(key, fallback);
}

// Factors that are 1, and bounds that are infinite, unless the family or the config has them.
absl::Status ReadMultipliers(const ConfigReader& config, const ModelFamily& family,
                             ModelConfig& model) {
  if (family.embedding_by_width) {
    model.embedding_multiplier = std::pow(static_cast<double>(model.hidden), 0.5);
  }
  if (family.attention_softcap > 0) {
    PTQWATCH_ASSIGN_OR_RETURN(model.attention_softcap, ReadSoftcap(config, "attn_logit_softcapping",
                                                                   family.attention_softcap));
  }
  if (family.reads_logits_softcap) {
    PTQWATCH_ASSIGN_OR_RETURN(model.logits_softcap, ReadSoftcap(config, "final_logit_softcapping",
                                                                family.logits_softcap));
  }
  if (!family.multipliers) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(model.embedding_multiplier, config.Positive("embedding_multiplier", 1));
  PTQWATCH_ASSIGN_OR_RETURN(model.residual_multiplier, config.Positive("residual_multiplier", 1));
  PTQWATCH_ASSIGN_OR_RETURN(model.logits_divisor, config.Positive("logits_scaling", 1));
  return absl::OkStatus();
}

// The scale of attention in each layer.
absl::StatusOr<std::vector<double>> ReadAttentionScales(const ConfigReader& config,
                                                        const ModelFamily& family,
                                                        const ModelConfig& model) {
  double scalar = static_cast<double>(model.head_dim);
  if (family.query_scalar > 0) {
    PTQWATCH_ASSIGN_OR_RETURN(
        scalar, config.Positive("query_pre_attn_scalar", static_cast<double>(family.query_scalar)));
  }
  double scale = std::pow(scalar, -0.5);
  if (family.multipliers) {
    PTQWATCH_ASSIGN_OR_RETURN(scale, config.Positive("attention_multiplier", 1));
  }
  std::vector<double> scales(static_cast<size_t>(model.blocks), scale);
  if (!family.layer_scales) return scales;
  PTQWATCH_ASSIGN_OR_RETURN(const bool by_width, config.Flag("scale_attn_weights", true));
  PTQWATCH_ASSIGN_OR_RETURN(const bool by_layer,
                            config.Flag("scale_attn_by_inverse_layer_idx", false));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!by_width) scales[i] = 1;
    if (by_layer) scales[i] /= static_cast<double>(i + 1);
  }
  return scales;
}

absl::Status ReadParts(const ConfigReader& config, const ModelFamily& family, ModelConfig& model) {
  model.norm = family.norm;
  model.norm_eps = family.eps;
  if (!family.eps_key.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(model.norm_eps, config.Positive(family.eps_key, family.eps));
  }
  model.residual = family.residual;
  if (family.residual == Residual::kParallel) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool parallel, config.Flag("use_parallel_residual", true));
    if (!parallel) model.residual = Residual::kPre;
  }
  model.qk_norm = family.qk_norm;
  model.rotates_first = family.rotates_first;
  if (family.qk_norm == QkNorm::kHead) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool normed, config.Flag("qk_layernorm", true));
    if (!normed) model.qk_norm = QkNorm::kNone;
  }
  model.gated = family.gated;
  model.fused_gate_up = family.fused_gate_up;
  model.qkv = family.qkv;
  model.transposed = family.transposed;
  const std::string_view key = family.activation_key;
  PTQWATCH_ASSIGN_OR_RETURN(std::string activation, config.Text(key, family.activation));
  if (activation == "swish") activation = "silu";
  if (family.gelu_is_tanh && activation == "gelu") activation = "gelu_pytorch_tanh";
  const std::optional<Activation> known = EnumValue<Activation>(kActivations, activation);
  if (!known) {
    return config.WrongValue(key, StrCat("known are ", ListOf(kActivations)));
  }
  // Its parameters are tensors that transformers makes for one family alone.
  if (*known == Activation::kXielu && family.activation != activation) {
    return config.WrongValue(key, StrCat("a ", family.model_type, " has no tensors for it"));
  }
  model.activation = *known;
  PTQWATCH_RETURN_IF_ERROR(ReadBiases(config, family, model));
  if (family.clips_qkv && config.Has("clip_qkv")) {
    PTQWATCH_ASSIGN_OR_RETURN(model.clip_qkv, config.Positive("clip_qkv"));
  }
  PTQWATCH_RETURN_IF_ERROR(ReadMultipliers(config, family, model));
  PTQWATCH_ASSIGN_OR_RETURN(model.tied_head, config.Flag("tie_word_embeddings", family.tied_head));
  model.sinks = family.sinks;
  model.names = family.names;
  return absl::OkStatus();
}

// The number of experts, which transformers takes under either name.
absl::StatusOr<int64_t> ReadExperts(const ConfigReader& config, int64_t fallback) {
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t experts,
                            config.Size("num_experts", fallback, 1, kMaxExperts));
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t local,
                            config.Size("num_local_experts", experts, 1, kMaxExperts));
  if (config.Has("num_experts") && local != experts) {
    return config.Error("num_local_experts", StrCat("is ", local, ", but num_experts ", experts));
  }
  return local;
}

// The mixture of a family that has one, if a layer uses it.
absl::Status ReadMixture(const ConfigReader& config, const MixtureFamily& family,
                         ModelConfig& model) {
  if (family.experts == 0) return absl::OkStatus();
  MixtureConfig mixture{.router = family.router, .normalized = family.normalized};
  PTQWATCH_ASSIGN_OR_RETURN(mixture.experts, ReadExperts(config, family.experts));
  PTQWATCH_ASSIGN_OR_RETURN(mixture.chosen, config.Size("num_experts_per_tok", family.chosen));
  if (mixture.chosen > mixture.experts) {
    return config.Error("num_experts_per_tok", StrCat("is ", mixture.chosen, ", more than the ",
                                                      mixture.experts, " experts"));
  }
  std::optional<int64_t> intermediate;
  if (family.intermediate > 0) intermediate = family.intermediate;
  PTQWATCH_ASSIGN_OR_RETURN(mixture.intermediate,
                            config.Size(family.intermediate_key, intermediate));
  if (family.normalized_key) {
    PTQWATCH_ASSIGN_OR_RETURN(mixture.normalized,
                              config.Flag("norm_topk_prob", mixture.normalized));
  }
  if (family.clamped) {
    ClampedGate& gate = mixture.clamped.emplace();
    PTQWATCH_ASSIGN_OR_RETURN(gate.alpha, config.Positive("swiglu_alpha", 1.702));
    PTQWATCH_ASSIGN_OR_RETURN(gate.limit, config.Positive("swiglu_limit", 7));
  }
  if (family.shared != SharedExpert::kNone) {
    PTQWATCH_ASSIGN_OR_RETURN(mixture.shared_intermediate,
                              config.Size(family.shared_key, family.shared_intermediate, 0));
    if (mixture.shared_intermediate > 0) mixture.shared = family.shared;
  }
  for (LayerConfig& layer : model.layers) layer.mixture = true;
  if (family.some_layers) {
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t step, config.Size("decoder_sparse_step", 1));
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> dense, config.Places("mlp_only_layers"));
    for (size_t i = 0; i < model.layers.size(); ++i) {
      model.layers[i].mixture = (static_cast<int64_t>(i) + 1) % step == 0;
    }
    for (const int64_t layer : dense) {
      if (layer < model.blocks) model.layers[static_cast<size_t>(layer)].mixture = false;
    }
  }
  model.mixture = mixture;
  return absl::OkStatus();
}

// Whether each layer sees positions.
absl::StatusOr<std::vector<bool>> ReadRopeLayers(const ConfigReader& config,
                                                 const ModelFamily& family, int64_t blocks) {
  std::vector<bool> has_rope(static_cast<size_t>(blocks), family.names.positions.empty());
  if (!family.skips_rope) return has_rope;
  if (config.Has("no_rope_layers")) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<bool> listed, config.Bits("no_rope_layers"));
    if (listed.size() < has_rope.size()) {
      return config.Error("no_rope_layers",
                          StrCat("has ", listed.size(), " elements for ", blocks, " layers"));
    }
    std::copy_n(listed.begin(), has_rope.size(), has_rope.begin());
    return has_rope;
  }
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t interval, config.Size("no_rope_layer_interval", 4));
  for (int64_t i = interval - 1; i < blocks; i += interval)
    has_rope[static_cast<size_t>(i)] = false;
  return has_rope;
}

// Whether a layer has a window by its family's rule. `first`: max_window_layers.
bool HasWindow(WindowRule rule, size_t layer, size_t first, size_t period, bool used,
               bool has_rope) {
  switch (rule) {
    case WindowRule::kNone:
      break;
    case WindowRule::kAll:
      return true;
    case WindowRule::kAllIfUsed:
      return used;
    case WindowRule::kInTurns:
      return used && layer % 2 == 0 && layer < first;
    case WindowRule::kLastLayers:
      return layer >= first;
    case WindowRule::kNoPeLayers:
      return used && !has_rope;
    case WindowRule::kPattern:
      return (layer + 1) % period != 0;
  }
  return false;
}

// The window of each layer, 0 for all positions.
absl::StatusOr<std::vector<int64_t>> ReadWindows(const ConfigReader& config,
                                                 const ModelFamily& family,
                                                 const std::vector<bool>& has_rope) {
  const WindowRule rule = family.windows;
  std::vector<int64_t> windows(has_rope.size(), 0);
  if (rule == WindowRule::kNone) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> types, config.Texts("layer_types"));
    for (const std::string& type : types) {
      if (type == kLayerTypes[0]) continue;
      return config.Error("layer_types", StrCat("has ", Quoted(type), "; a ", family.model_type,
                                                " has ", kLayerTypes[0], " alone"));
    }
    return windows;
  }
  const int64_t fallback = config.IsNull("sliding_window") ? 0 : family.window;
  // transformers writes 0 for a window that is not used there.
  const int64_t least = rule == WindowRule::kInTurns ? 0 : 1;
  PTQWATCH_ASSIGN_OR_RETURN(int64_t window, config.Size("sliding_window", fallback, least));
  PTQWATCH_ASSIGN_OR_RETURN(const bool used, config.Flag("use_sliding_window", false));
  const bool all = rule == WindowRule::kAll || rule == WindowRule::kAllIfUsed;
  const bool if_used = rule == WindowRule::kLastLayers || rule == WindowRule::kAllIfUsed ||
                       rule == WindowRule::kInTurns;
  if (if_used && !used) window = 0;
  PTQWATCH_ASSIGN_OR_RETURN(const int64_t first, config.Size("max_window_layers", 28, 0));
  int64_t period = family.window_period;
  if (!family.window_period_key.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(period, config.Size(family.window_period_key, period));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<std::string> types, config.Texts("layer_types"));
  if (config.Has("layer_types") && types.size() != windows.size()) {
    return config.Error("layer_types",
                        StrCat("has ", types.size(), " elements for ", windows.size(), " layers"));
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    bool windowed = HasWindow(rule, i, static_cast<size_t>(first), static_cast<size_t>(period),
                              used, has_rope[i]);
    if (window == 0 && rule != WindowRule::kPattern && rule != WindowRule::kInTurns) {
      windowed = false;
    }
    if (!types.empty()) {
      if (types[i] != kLayerTypes[0] && types[i] != kLayerTypes[1]) {
        return config.Error("layer_types",
                            StrCat("has ", Quoted(types[i]), "; known are ", ListOf(kLayerTypes)));
      }
      const bool listed = types[i] == kLayerTypes[1];
      if (all && listed != windowed) {
        return config.Error("layer_types", StrCat("has ", Quoted(types[i]), "; all layers of a ",
                                                  family.model_type, " have the same window"));
      }
      windowed = listed;
    }
    if (windowed && window == 0) {
      return config.Error("sliding_window", StrCat("is missing or unused, but layer ", i,
                                                   " is of type ", kLayerTypes[1]));
    }
    if (windowed) windows[i] = window;
  }
  return windows;
}

// Whether the checkpoint is quantized, in the one way that is read.
absl::StatusOr<bool> IsMxfp4(const ConfigReader& config, const ModelFamily& family) {
  if (!config.Has("quantization_config")) return false;
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<ConfigReader> quantized,
                            config.Object("quantization_config"));
  if (quantized && family.mxfp4) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::string method, quantized->Text("quant_method", ""));
    if (method == "mxfp4") return true;
    return quantized->WrongValue("quant_method", "only mxfp4 is read, or full precision");
  }
  return config.Error("quantization_config", "is there; a checkpoint in full precision is needed");
}

absl::StatusOr<ModelConfig> ReadModelConfig(const ConfigReader& config) {
  PTQWATCH_ASSIGN_OR_RETURN(const ModelFamily* family, FindFamily(config));
  PTQWATCH_ASSIGN_OR_RETURN(const bool mxfp4, IsMxfp4(config, *family));
  PTQWATCH_ASSIGN_OR_RETURN(const bool is_causal, config.Flag("is_causal", true));
  if (!is_causal || config.IsNull("is_causal")) {
    return config.Error("is_causal", "is false or null; only true is known");
  }
  if (!config.IsOff("per_layer_config")) {
    return config.Error("per_layer_config", "is there; settings of single layers are not known");
  }
  ModelConfig model;
  model.model_type = std::string(family->model_type);
  model.mxfp4 = mxfp4;
  for (const std::string_view key : family->unsupported) {
    if (key.empty() || config.IsOff(key)) continue;
    return config.WrongValue(key, "only false or null is known");
  }
  PTQWATCH_RETURN_IF_ERROR(ReadSizes(config, *family, model));
  PTQWATCH_RETURN_IF_ERROR(ReadHeads(config, *family, model));
  PTQWATCH_RETURN_IF_ERROR(ReadParts(config, *family, model));
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<double> scales,
                            ReadAttentionScales(config, *family, model));
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<bool> has_rope,
                            ReadRopeLayers(config, *family, model.blocks));
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> windows,
                            ReadWindows(config, *family, has_rope));
  RopeConfigs ropes;
  if (model.names.positions.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(ropes, ReadRope(config, *family, model.head_dim, model.context));
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    LayerConfig& layer = model.layers.emplace_back();
    layer.attention_scale = scales[i];
    layer.window = windows[i];
    if (has_rope[i]) layer.rope = windows[i] > 0 ? ropes.windowed : ropes.full;
  }
  PTQWATCH_RETURN_IF_ERROR(ReadMixture(config, family->mixture, model));
  return model;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view path) {
  return Guard(Quoted(path), absl::StatusCode::kInternal, [&]() -> absl::StatusOr<ModelConfig> {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) return absl::DataLossError(StrCat(Quoted(path), " is not JSON"));
    if (!object.is_object()) {
      return absl::InvalidArgumentError(StrCat(Quoted(path), " is not a JSON object"));
    }
    return ReadModelConfig(ConfigReader(object, path));
  });
}

}  // namespace ptqwatch::internal
