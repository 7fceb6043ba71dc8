#include "streamed/noise_streams.h"

#include <algorithm>
#include <iterator>

#include "base/status_macros.h"
#include "streamed/weight_copies.h"

namespace ptqwatch::internal {

int64_t NoiseStreams::Streams(int64_t sequences, int64_t length) {
  const int64_t together = SequencesTogether(length);
  const NoisePlan plan(static_cast<size_t>((sequences + together - 1) / together));
  return static_cast<int64_t>(plan.evaluations / plan.batches);
}

absl::StatusOr<NoiseStreams> NoiseStreams::Begin(const TokenStream& probe, double relative_norm,
                                                 const ExecutionContext& context) {
  NoiseStreams noise(NoisePlan(probe.slices()), relative_norm);
  for (size_t e = 0; e < noise.plan_.evaluations; e += noise.plan_.batches) {
    PTQWATCH_ASSIGN_OR_RETURN(TokenStream stream, probe.Copy(context));
    noise.streams_.push_back(std::move(stream));
  }
  return noise;
}

absl::Status NoiseStreams::PassThrough(const DecoderBlock& block,
                                       absl::Span<const DecoderLinear> linears,
                                       const ExecutionContext& context) {
  for (size_t draw = 0; draw < plan_.draws; ++draw) {
    WeightCopies memory(block.weights());
    std::vector<at::Tensor> noisy;
    for (size_t linear = 0; linear < linears.size(); ++linear) {
      const at::Tensor stored = AsStored(linears[linear], block.weights()[linear]);
      PTQWATCH_ASSIGN_OR_RETURN(
          const at::Tensor drawn,
          NoisyWeight(stored, relative_norm_, linears[linear].name, draw, context));
      noisy.push_back(memory.Empty(linear).copy_(AsStored(linears[linear], drawn)));
    }
    for (size_t e = draw; e < plan_.evaluations; e += plan_.draws) {
      PTQWATCH_RETURN_IF_ERROR(
          streams_[e / plan_.batches].PassSlice(e % plan_.batches, block, noisy, context));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<UnitLosses>> NoiseStreams::Losses(
    const DecoderHead& head, const ExecutionContext& context) const {
  std::vector<UnitLosses> losses;
  for (const TokenStream& stream : streams_) {
    PTQWATCH_ASSIGN_OR_RETURN(std::vector<UnitLosses> own, stream.Losses(head, context));
    std::move(own.begin(), own.end(), std::back_inserter(losses));
  }
  return losses;
}

}  // namespace ptqwatch::internal
