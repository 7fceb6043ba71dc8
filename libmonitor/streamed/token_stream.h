#ifndef PTQWATCH_STREAMED_TOKEN_STREAM_H_
#define PTQWATCH_STREAMED_TOKEN_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "models/decoder.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/subject.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// The number of sequences of `length` tokens that are computed at a time: about a thousand tokens.
/// It depends on nothing else, so a result does not depend on memory.
int64_t SequencesTogether(int64_t length);

/// The same sequences, tokens int64 [sequences, N + 1], as batches of SequencesTogether(N).
std::vector<Batch> TokenBatches(const at::Tensor& tokens);

/// The hidden states of token sequences in front of a block: float32 [sequences, N, D] on the CPU.
/// Not thread-safe.
class TokenStream {
 public:
  /// Sees the input of a linear of the block before it is applied.
  using OnInput = absl::FunctionRef<absl::Status(size_t linear, const at::Tensor& x)>;

  /// Embeds all but the last token of each sequence of `tokens`, int64 [sequences, N + 1]. Reserves
  /// Bytes in context.bytes while it exists. `decoder` must outlive it.
  static absl::StatusOr<TokenStream> Embed(const Decoder& decoder, at::Tensor tokens,
                                           const ExecutionContext& context);
  /// Another stream of the same tokens and hidden states.
  absl::StatusOr<TokenStream> Copy(const ExecutionContext& context) const;
  static int64_t Bytes(const Decoder& decoder, const at::Tensor& tokens);

  /// Moves the stream through a block with `weights` in place of its own, in the order of
  /// Decoder::LinearsOf. Checks the context before each linear. An error leaves it unusable.
  absl::Status PassThrough(const DecoderBlock& block, const std::vector<at::Tensor>& weights,
                           OnInput on_input, const ExecutionContext& context);

  /// Same, but leaves the stream where it is.
  absl::Status LookThrough(const DecoderBlock& block, const std::vector<at::Tensor>& weights,
                           OnInput on_input, const ExecutionContext& context) const;

  int64_t tokens() const { return hidden_.size(0) * hidden_.size(1); }
  /// The number of TokenBatches.
  size_t slices() const;
  /// Moves the sequences of one of the TokenBatches alone.
  absl::Status PassSlice(size_t slice, const DecoderBlock& block,
                         const std::vector<at::Tensor>& weights, const ExecutionContext& context);

  /// ||h - r||^2 / ||r||^2 of the hidden states h and those of `reference`, a stream of the same
  /// tokens. Sums in float64.
  double SquaredErrorRatio(const TokenStream& reference) const;

  /// The losses of all sequences, by TokenBatches, after the last block.
  absl::StatusOr<std::vector<UnitLosses>> Losses(const DecoderHead& head,
                                                 const ExecutionContext& context) const;

  /// The hidden states at some places, int64 [places]: sequence N + position. [places, D].
  at::Tensor HiddenAt(const at::Tensor& places) const;

 private:
  // The hidden states of `count` sequences, beginning with `first`, behind the block.
  absl::StatusOr<at::Tensor> Compute(int64_t first, int64_t count, const DecoderBlock& block,
                                     const std::vector<at::Tensor>& weights, OnInput on_input,
                                     const ExecutionContext& context) const;
  // Moves them.
  absl::Status Pass(int64_t first, int64_t count, const DecoderBlock& block,
                    const std::vector<at::Tensor>& weights, OnInput on_input,
                    const ExecutionContext& context);
  TokenStream(at::Tensor tokens, at::Tensor hidden, std::unique_ptr<Reservation> held)
      : tokens_(std::move(tokens)), hidden_(std::move(hidden)), held_(std::move(held)) {}

  at::Tensor tokens_;
  at::Tensor hidden_;
  std::unique_ptr<Reservation> held_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_TOKEN_STREAM_H_
