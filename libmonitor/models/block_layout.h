#ifndef PTQWATCH_MODELS_BLOCK_LAYOUT_H_
#define PTQWATCH_MODELS_BLOCK_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_config.h"

namespace ptqwatch::internal {

/// A matrix W [outputs, inputs] of a block that is multiplied with activations: y = x W^T + b.
struct DecoderLinear {
  /// In the checkpoint, "model.layers.3.mlp.up_proj.weight"; of an expert
  /// "model.layers.3.mlp.experts.down_proj[7]".
  std::string name;
  int64_t outputs = 0;
  int64_t inputs = 0;
  /// Linears of a block with the same number read the same tensor, such as q, k and v.
  int input = 0;
  std::string bias = {};    ///< name of [outputs]; empty if it has none
  bool transposed = false;  ///< the checkpoint has W^T
  std::string stack = {};   ///< name of the tensor [experts, ...] that holds it; empty if none does
  int64_t experts = 0;      ///< of the stack
  int64_t expert = 0;       ///< its place there

  /// The tensor of the checkpoint that holds it.
  const std::string& tensor() const { return stack.empty() ? name : stack; }
};

/// A tensor that a checkpoint must hold. An empty name: this model has no such tensor.
struct NamedShape {
  std::string name = {};
  std::vector<int64_t> shape = {};
};

/// The tensors of a block that are not quantized.
enum class BlockVector {
  kAttentionNorm,
  kAttentionNormBias,
  kMlpNorm,
  kMlpNormBias,
  kAttentionPostNorm,  // an RMS norm's, as the next three
  kMlpPostNorm,
  kQNorm,
  kKNorm,
  kAlphaP,  // xIELU's, up to kEps
  kAlphaN,
  kBeta,
  kEps,
  kSinks,
  kRouter,  // [experts, hidden]
  kRouterBias,
  kGateUpBias,  // [experts, 2 intermediate]
  kDownBias,    // [experts, hidden]
};
inline constexpr size_t kBlockVectors = 17;

/// Which tensors a block has.
struct BlockLayout {
  std::vector<DecoderLinear> linears;             ///< in the order of first use
  std::array<NamedShape, kBlockVectors> vectors;  ///< by BlockVector

  /// All of them.
  std::vector<NamedShape> Tensors() const;
};
BlockLayout LayoutOf(const ModelConfig& model, int64_t block);

/// The tensors outside of the blocks; a tied head is not among them.
struct OuterLayout {
  NamedShape embedding;
  NamedShape positions;
  NamedShape final_norm;
  NamedShape final_norm_bias;
  NamedShape head;
};
OuterLayout OuterLayoutOf(const ModelConfig& model);

/// Whether files have this tensor for old programs, or a constant that the config gives as well.
bool IsIgnoredTensor(const ModelConfig& model, std::string_view name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_BLOCK_LAYOUT_H_
