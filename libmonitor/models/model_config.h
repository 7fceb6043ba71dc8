#ifndef PTQWATCH_MODELS_MODEL_CONFIG_H_
#define PTQWATCH_MODELS_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

enum class NormKind {
  kLayerNorm,       ///< with weight and bias
  kPlainLayerNorm,  ///< without parameters
  kRms,             ///< with weight
  kRmsPlusOne,      ///< with weight, to which 1 is added
};

/// The function of x that a block computes, with its norms n1 and n2.
enum class Residual {
  kPre,       ///< h = x + attention(n1 x), then h + mlp(n2 h)
  kParallel,  ///< mlp(n2 x) + attention(n1 x) + x
  kPost,      ///< h = x + n1 attention(x), then h + n2 mlp(h)
  kSandwich,  ///< h = x + p1 attention(n1 x), then h + p2 mlp(n2 h), with norms p1 and p2
};

/// The norm of queries and keys.
enum class QkNorm {
  kNone,
  kProjection,  ///< over all heads at once
  kHead,        ///< over each head
};

/// The matrices that make queries, keys and values.
enum class QkvLayout {
  kSeparate,
  kByHead,  ///< one, whose rows are q, k and v of head 0, of head 1, ...
  kByKind,  ///< one, whose rows are all of q, all of k, all of v
};

enum class Activation {
  kGelu,
  kSilu,
  kXielu,
  kGeluNew,   ///< GELU by tanh, in the steps of the first GPT-2
  kGeluTanh,  ///< the same formula in one step, which rounds otherwise
};

/// How the router of a mixture of experts weighs the experts that it chooses for a token.
enum class RouterKind {
  kSoftmaxOfAll,     ///< their shares of a softmax over all experts
  kSoftmaxOfChosen,  ///< a softmax over the chosen ones
};

/// An expert beside the others through which every token goes.
enum class SharedExpert {
  kNone,
  kGated,  ///< an MLP whose output is multiplied by a sigmoid of one product
  kFused,  ///< one whose gate and up are one matrix
};

/// gpt-oss's experts: gate and up are the even and the odd outputs of their matrix; matrices are
/// stored as [inputs, outputs], and they and the router have biases. down((up + 1) gate
/// sigmoid(alpha gate)), with gate at most `limit` and up from -limit to limit.
struct ClampedGate {
  double alpha = 0;
  double limit = 0;

  friend bool operator==(const ClampedGate&, const ClampedGate&) = default;
};

/// MLPs of which each token goes through a few. A router chooses the `chosen` experts with the
/// greatest products; the sum of their outputs, weighed, is that of the mixture.
struct MixtureConfig {
  int64_t experts = 0;
  int64_t chosen = 0;
  int64_t intermediate = 0;  ///< of an expert
  RouterKind router = RouterKind::kSoftmaxOfAll;
  bool normalized = false;  ///< kSoftmaxOfAll: the weights of a token are divided by their sum
  std::optional<ClampedGate> clamped = std::nullopt;
  SharedExpert shared = SharedExpert::kNone;
  int64_t shared_intermediate = 0;

  friend bool operator==(const MixtureConfig&, const MixtureConfig&) = default;
};

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope };

/// Rotary position embedding of one kind of layer.
struct RopeConfig {
  int64_t dims = 0;          ///< of a head, from its first on; the others are not rotated
  bool interleaved = false;  ///< pairs are dimensions 2 i and 2 i + 1, else i and half + i
  double theta = 0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_freq_factor = 0;    ///< kLlama3
  double high_freq_factor = 0;   ///< kLlama3
  int64_t original_context = 0;  ///< kLlama3, kYarn, kLongRope
  double beta_fast = 0;          ///< kYarn: turns in the original context of pairs left alone
  double beta_slow = 0;          ///< kYarn: turns of pairs that are slowed down by `factor`
  bool truncate = true;          ///< kYarn: the first and last of these pairs are whole numbers
  double attention_factor = 1;   ///< kYarn, kLongRope: of the cosines and sines
  /// kLongRope: what slows down each pair of dimensions in sequences within the original context,
  /// and in longer ones.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct LayerConfig {
  std::optional<RopeConfig> rope = std::nullopt;  ///< absent: the layer does not see positions
  int64_t window = 0;          ///< a token sees this many positions up to its own; 0: all
  double attention_scale = 1;  ///< of products of queries and keys
  bool mixture = false;        ///< the MLP is a mixture of experts

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

/// Names in checkpoints of the tensors of a mixture that transformers holds as "gate_up_proj" and
/// "down_proj", [experts, ...]. Relative to a block.
struct ExpertNames {
  std::string_view part = "mlp.";
  std::string_view router = "gate";
  std::string_view gate = "gate_proj";  ///< of one expert
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view gates_ups = {};  ///< of all experts, if stacks have names of their own
  std::string_view downs = {};
};

/// Where a family keeps its tensors. Full names, or names relative to a block.
struct TensorNames {
  std::string_view embedding = "model.embed_tokens.weight";
  std::string_view positions = {};  ///< [context, hidden], added to the embedding
  std::string_view blocks = "model.layers.";
  std::string_view final_norm = "model.norm";
  std::string_view attention = "self_attn.";
  std::string_view qkv = "qkv_proj";  ///< if it is one matrix
  std::string_view q_norm = "q_norm";
  std::string_view k_norm = "k_norm";
  std::string_view output = "o_proj";
  std::string_view gate_up = "gate_up_proj";  ///< if it is one matrix
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view attention_norm = "input_layernorm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view attention_post_norm = "post_attention_layernorm";  ///< of kSandwich
  std::string_view mlp_post_norm = "post_feedforward_layernorm";
  std::string_view mixture = "mlp.";
  std::string_view router = "gate";
  ExpertNames experts = {};
  std::string_view head = "lm_head.weight";
  std::string_view other_head = {};  ///< an older name of the head
};

/// A decoder as config.json describes it. No LibTorch here.
struct ModelConfig {
  std::string model_type;  ///< "llama"
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t blocks = 0;
  int64_t context = 0;  ///< max_position_embeddings
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;  ///< divides `heads`; a key head serves heads / key_heads query heads
  int64_t head_dim = 0;

  NormKind norm = NormKind::kRms;
  double norm_eps = 0;
  Residual residual = Residual::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  bool rotates_first = false;  ///< the norm of queries and keys comes after they are rotated
  Activation activation = Activation::kSilu;
  bool gated = true;           ///< down(f(gate x) * up x), else down(f(up x))
  bool fused_gate_up = false;  ///< one matrix whose rows are those of gate, then those of up
  QkvLayout qkv = QkvLayout::kSeparate;
  bool transposed = false;  ///< matrices are stored as [inputs, outputs]
  bool qkv_bias = false;
  bool output_bias = false;  ///< of the matrix after the attention
  bool mlp_bias = false;
  bool sinks = false;      ///< each head has a score with which a token looks at nothing
  bool tied_head = false;  ///< the head is the embedding, unless the file holds a head
  std::optional<double> clip_qkv = std::nullopt;  ///< bound of the absolute values of q, k and v
  double embedding_multiplier = 1;
  double residual_multiplier = 1;  ///< of what attention and MLP add, if the norms are kPre
  double logits_divisor = 1;
  /// Numbers x become c tanh(x / c), with c for the products of queries and keys, and for logits.
  std::optional<double> attention_softcap = std::nullopt;
  std::optional<double> logits_softcap = std::nullopt;
  std::optional<MixtureConfig> mixture = std::nullopt;
  bool mxfp4 = false;                    ///< experts may be stored so (PackedTensor)
  std::vector<LayerConfig> layers = {};  ///< one a block
  TensorNames names = {};
};

/// Reads the text of a config.json, with the keys of transformers 4 (rope_theta, rope_scaling,
/// rotary_pct) or 5 (rope_parameters). A key that is absent or null has the default of the family's
/// class in transformers; sizes have none. `path` is for messages.
///
/// DataLoss if the text is not JSON, such as one cut short. InvalidArgument names file and key, and
/// what is known if a model type, activation, layer type or rope type is not.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json, std::string_view path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_MODEL_CONFIG_H_
