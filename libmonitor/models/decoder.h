#ifndef PTQWATCH_MODELS_DECODER_H_
#define PTQWATCH_MODELS_DECODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/block_layout.h"
#include "models/model_config.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {

/// Computes linear `index` of a block (its position in Decoder::LinearsOf) on `x` [..., inputs],
/// with its bias.
using ApplyLinear = absl::FunctionRef<at::Tensor(size_t index, const at::Tensor& x)>;

/// The tensor of the checkpoint that is this matrix of a linear [outputs, inputs], or the matrix of
/// that tensor: a view.
at::Tensor AsStored(const DecoderLinear& linear, const at::Tensor& matrix);

/// One block with its weights. Thread-safe.
class DecoderBlock {
 public:
  /// The weights in the order of Decoder::LinearsOf, [outputs, inputs]; biases may be undefined.
  const std::vector<at::Tensor>& weights() const { return weights_; }
  const std::vector<at::Tensor>& biases() const { return biases_; }

  /// hidden [B, T, D] -> [B, T, D], causal over T, positions 0, 1, ... Calls `apply` once per
  /// linear, in the order of LinearsOf. Differentiable twice. Does not change `hidden`. May throw.
  at::Tensor Forward(const at::Tensor& hidden, ApplyLinear apply) const;
  /// Same, with the block's own weights.
  at::Tensor Forward(const at::Tensor& hidden) const;

 private:
  friend class Decoder;
  DecoderBlock() = default;

  using Heads = std::array<at::Tensor, 3>;  // queries, keys, values

  const at::Tensor& Vector(BlockVector which) const { return vectors_[static_cast<size_t>(which)]; }
  /// Each [B, T, heads, head_dim], before they are rotated.
  Heads MakeHeads(const at::Tensor& x, ApplyLinear apply) const;
  void NormQueriesAndKeys(Heads& heads) const;
  at::Tensor Attention(const at::Tensor& x, ApplyLinear apply) const;
  at::Tensor Mlp(const at::Tensor& x, ApplyLinear apply) const;
  /// Sends an expert without rows through its linears, too.
  at::Tensor Mixture(const at::Tensor& x, ApplyLinear apply) const;
  /// The output of the shared expert for the rows of a mixture. `linear` is the index of its first
  /// linear.
  at::Tensor SharedOutput(const at::Tensor& rows, size_t linear, ApplyLinear apply) const;
  /// The input of an expert's down matrix, from the result of the one before.
  at::Tensor InsideExpert(const at::Tensor& gate_up, int64_t expert) const;
  at::Tensor Norm(const at::Tensor& x, BlockVector weight,
                  std::optional<BlockVector> bias = std::nullopt) const;
  at::Tensor AttentionNorm(const at::Tensor& x) const;
  at::Tensor MlpNorm(const at::Tensor& x) const;

  std::shared_ptr<const ModelConfig> config_;
  LayerConfig layer_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> biases_;
  std::array<at::Tensor, kBlockVectors> vectors_;
};

/// The final norm and the output head. Thread-safe.
class DecoderHead {
 public:
  /// The loss in nats of each next token: hidden [B, T, D], targets int64 [B, T] -> float32 [B, T].
  /// Works on slices of a sequence's tokens, whose length depends on the vocabulary alone, so the
  /// logits of the whole batch never exist at once, and the losses of a sequence do not depend on
  /// the other sequences. Differentiable twice. May throw.
  at::Tensor TokenLosses(const at::Tensor& hidden, const at::Tensor& targets) const;
  /// [B, T, D] -> [B, T, vocabulary].
  at::Tensor Logits(const at::Tensor& hidden) const;

 private:
  friend class Decoder;
  DecoderHead() = default;

  std::shared_ptr<const ModelConfig> config_;
  at::Tensor norm_;
  at::Tensor norm_bias_;
  at::Tensor weight_;  // [vocabulary, D]
};

/// A decoder-only language model as its checkpoint's config.json describes it, computed in float32
/// by the operations of transformers' eager models in their order. Holds no weights: reads the
/// embedding, a block or the head on request, so a model need not fit into memory. Thread-safe.
class Decoder {
 public:
  /// Checks names and shapes of all tensors of `weights` (not owned; must outlive this) against the
  /// config. InvalidArgument names the folder, and the tensors that are missing, left over or of
  /// another shape (the first 20). Experts are as in transformers, whatever the layout of the
  /// checkpoint (ExpertReader): names, TensorNames and weights() are those of the stacks.
  static absl::StatusOr<Decoder> Create(ModelConfig config, const WeightReader& weights);

  const ModelConfig& config() const { return *config_; }
  const WeightReader& weights() const { return *weights_; }
  int64_t blocks() const { return config_->blocks; }
  /// Elements of all tensors that are read; a tied head counts once.
  int64_t parameters() const { return parameters_; }
  /// The tensors that are read, ascending: those of the file without what old programs need.
  const std::vector<std::string>& TensorNames() const { return tensor_names_; }
  /// The linears of a block in the order of first use.
  std::vector<DecoderLinear> LinearsOf(int64_t block) const;
  /// Bytes of one block's tensors as float32.
  int64_t BlockBytes(int64_t block) const;

  /// tokens int64 [B, T] -> hidden [B, T, D]. Reads only the rows that occur. InvalidArgument names
  /// the place of a token outside of the vocabulary, or the length of sequences that learned
  /// positions do not reach.
  absl::StatusOr<at::Tensor> Embed(const at::Tensor& tokens) const;
  absl::StatusOr<DecoderBlock> ReadBlock(int64_t block) const;
  absl::StatusOr<DecoderHead> ReadHead() const;

 private:
  Decoder(ModelConfig config, const WeightReader& weights)
      : config_(std::make_shared<const ModelConfig>(std::move(config))), weights_(&weights) {}

  absl::Status CheckTensors();
  /// Undefined if `name` is empty.
  absl::StatusOr<at::Tensor> Read(const std::string& name) const;

  std::shared_ptr<const ModelConfig> config_;
  std::shared_ptr<const WeightReader> experts_;  // stacked, if the checkpoint has them one by one
  const WeightReader* weights_;
  OuterLayout outer_;  ///< with the head's name in these files; the embedding's if it is tied
  std::vector<std::string> tensor_names_;
  int64_t parameters_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_DECODER_H_
