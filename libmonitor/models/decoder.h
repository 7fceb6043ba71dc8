#ifndef PTQWATCH_MODELS_DECODER_H_
#define PTQWATCH_MODELS_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/model_config.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {

/// A matrix of a block that is multiplied with activations: y = x W^T + b.
struct DecoderLinear {
  std::string name;  ///< in the checkpoint, "model.layers.3.mlp.up_proj.weight"
  int64_t outputs = 0;
  int64_t inputs = 0;
  /// Linears of a block with the same number read the same tensor, such as q, k and v.
  int input = 0;
};

/// Computes linear `index` of a block (its position in Decoder::LinearsOf) on `x` [..., inputs],
/// with its bias.
using ApplyLinear = absl::FunctionRef<at::Tensor(size_t index, const at::Tensor& x)>;

/// One block with its weights.
class DecoderBlock {
 public:
  /// The weights in the order of Decoder::LinearsOf, [outputs, inputs]; biases may be undefined.
  const std::vector<at::Tensor>& weights() const { return weights_; }
  const std::vector<at::Tensor>& biases() const { return biases_; }

  /// hidden [B, T, D] -> [B, T, D], causal over T, positions 0, 1, ... Calls `apply` once per
  /// linear, in the order of LinearsOf. Differentiable. Does not change `hidden`. May throw.
  at::Tensor Forward(const at::Tensor& hidden, ApplyLinear apply) const;
  /// Same, with the block's own weights.
  at::Tensor Forward(const at::Tensor& hidden) const;

 private:
  friend class Decoder;
  // to be designed
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> biases_;
};

/// The final norm and the output head.
class DecoderHead {
 public:
  /// The loss in nats of each next token: hidden [B, T, D], targets int64 [B, T] -> float32 [B, T].
  /// Works on slices of tokens, so that logits of the whole batch never exist at once; a result
  /// does not depend on how. May throw.
  at::Tensor TokenLosses(const at::Tensor& hidden, const at::Tensor& targets) const;
  /// [B, T, D] -> [B, T, vocabulary].
  at::Tensor Logits(const at::Tensor& hidden) const;

 private:
  friend class Decoder;
  // to be designed
};

/// A decoder-only language model as its checkpoint's config.json describes it. Holds no weights:
/// reads the embedding, a block or the head on request, so a model need not fit into memory.
/// Thread-safe.
class Decoder {
 public:
  /// Checks names and shapes of all tensors of `weights` (not owned; must outlive this) against the
  /// config. InvalidArgument names every tensor that is missing, left over or of another shape.
  static absl::StatusOr<Decoder> Create(ModelConfig config, const WeightReader& weights);

  const ModelConfig& config() const { return config_; }
  int64_t blocks() const;
  int64_t parameters() const;
  /// The linears of a block in the order of first use.
  std::vector<DecoderLinear> LinearsOf(int64_t block) const;
  /// Bytes of one block's tensors as float32.
  int64_t BlockBytes(int64_t block) const;

  /// tokens int64 [B, T] -> hidden [B, T, D]. Reads only the rows that occur.
  absl::StatusOr<at::Tensor> Embed(const at::Tensor& tokens) const;
  absl::StatusOr<DecoderBlock> ReadBlock(int64_t block) const;
  absl::StatusOr<DecoderHead> ReadHead() const;

 private:
  Decoder(ModelConfig config, const WeightReader& weights);
  ModelConfig config_;
  const WeightReader* weights_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_DECODER_H_
