#ifndef PTQWATCH_STREAMED_NOISE_STREAMS_H_
#define PTQWATCH_STREAMED_NOISE_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/decoder.h"
#include "probes/weight_noise.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/unit_losses.h"
#include "streamed/token_stream.h"

namespace ptqwatch::internal {

/// The probe tokens on their way through blocks with noise in the linears' weights, by the
/// NoisePlan of their batches (TokenBatches): one stream, or a few if the tokens are few. The same
/// bits as NoiseProbe on the whole model. Not thread-safe.
class NoiseStreams {
 public:
  /// `probe` has been embedded and passed no block. `relative_norm` is positive.
  static absl::StatusOr<NoiseStreams> Begin(const TokenStream& probe, double relative_norm,
                                            const ExecutionContext& context);
  /// Number of streams for `sequences` of `length` tokens.
  static int64_t Streams(int64_t sequences, int64_t length);

  /// Takes memory for the weights of the block's linears, beside a forward pass. Errors as
  /// TokenStream::PassThrough.
  absl::Status PassThrough(const DecoderBlock& block, absl::Span<const DecoderLinear> linears,
                           const ExecutionContext& context);

  /// The losses after the last block, of each evaluation of the plan.
  absl::StatusOr<std::vector<UnitLosses>> Losses(const DecoderHead& head,
                                                 const ExecutionContext& context) const;

 private:
  NoiseStreams(NoisePlan plan, double relative_norm) : plan_(plan), relative_norm_(relative_norm) {}

  NoisePlan plan_;
  double relative_norm_;
  std::vector<TokenStream> streams_;  // evaluation e is slice e % batches of stream e / batches
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_NOISE_STREAMS_H_
