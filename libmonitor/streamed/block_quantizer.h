#ifndef PTQWATCH_STREAMED_BLOCK_QUANTIZER_H_
#define PTQWATCH_STREAMED_BLOCK_QUANTIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/reservation.h"
#include "capture/quantize_backend.h"
#include "models/decoder.h"
#include "probes/quantizer_report.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "streamed/token_stream.h"

namespace ptqwatch::internal {

/// The Gram matrices of a block's inputs, each once.
struct BlockGrams {
  std::vector<std::unique_ptr<LayerGram>> grams;
  std::vector<size_t> of_linear;  ///< index into `grams`
};

/// Bytes of the Gram matrices of a block with these linears.
int64_t BlockGramBytes(absl::Span<const DecoderLinear> linears);

/// Moves the calibration stream through a block with its own weights and sums the second moments of
/// every distinct input. The caller reserves BlockGramBytes.
absl::StatusOr<BlockGrams> CaptureBlock(const DecoderBlock& block,
                                        absl::Span<const DecoderLinear> linears,
                                        TokenStream& calibration, QuantizeBackend& backend,
                                        const ExecutionContext& context);

/// A block under one quantizer.
struct QuantizedBlock {
  /// If not ok, the quantizer failed, and the rest is incomplete.
  absl::Status status;
  std::vector<at::Tensor> weights;  ///< of each linear; the block's own if it has no codes
  std::vector<QuantizedLayerRow> rows;
  double seconds = 0;  ///< work shared by several quantizers counts for the first
};

/// Quantizes the linears of a block under every spec; those of one linear share their work. Bytes
/// of the weights are the caller's to reserve. Cancelled and DeadlineExceeded as errors; all others
/// concern one quantizer.
absl::StatusOr<std::vector<QuantizedBlock>> QuantizeBlock(const DecoderBlock& block,
                                                          absl::Span<const DecoderLinear> linears,
                                                          const BlockGrams& grams,
                                                          absl::Span<const QuantizerSpec> specs,
                                                          QuantizeBackend& backend,
                                                          const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_BLOCK_QUANTIZER_H_
