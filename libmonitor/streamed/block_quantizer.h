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
#include "capture/layer_selection.h"
#include "capture/quantize_backend.h"
#include "models/decoder.h"
#include "probes/quantizer_report.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"
#include "streamed/token_stream.h"
#include "streamed/weight_copies.h"

namespace ptqwatch::internal {

/// Linears [first, end) of a block, whose Gram matrices are in memory together.
struct LinearRange {
  size_t first = 0;
  size_t end = 0;
};

/// The linears of a block in order, divided where the Gram matrices of their inputs would exceed
/// `max_bytes`. Linears with the same input stay together, whatever its Gram matrix takes.
std::vector<LinearRange> DivideByGrams(absl::Span<const DecoderLinear> linears, int64_t max_bytes);

/// Bytes of the Gram matrices of these linears' inputs.
int64_t BlockGramBytes(absl::Span<const DecoderLinear> linears);

/// The Gram matrices of the inputs of a range of linears, each once.
struct BlockGrams {
  LinearRange range = {};
  int64_t tokens = 0;  ///< of the calibration stream
  std::vector<std::unique_ptr<LayerGram>> grams = {};
  std::vector<size_t> of_linear = {};  ///< index into `grams`, from range.first on
};

/// Sends the calibration stream through a block with its own weights and sums the second moments of
/// every distinct input of a range. With the last linear in it, the stream is moved; else it stays
/// in front of the block. The caller reserves BlockGramBytes.
absl::StatusOr<BlockGrams> CaptureBlock(const DecoderBlock& block,
                                        absl::Span<const DecoderLinear> linears, LinearRange range,
                                        TokenStream& calibration, QuantizeBackend& backend,
                                        const ExecutionContext& context);

/// A block under one quantizer. The block must outlive it.
struct QuantizedBlock {
  explicit QuantizedBlock(const DecoderBlock& block)
      : weights(block.weights()), memory(block.weights()) {}

  /// If not ok, the quantizer failed, and the rest is incomplete.
  absl::Status status;
  std::vector<at::Tensor> weights;  ///< of each linear; the block's own if it has no codes
  std::vector<QuantizedLayerRow> rows;
  double seconds = 0;   ///< work shared by several quantizers counts for the first
  WeightCopies memory;  ///< of `weights`
};

/// Quantizes the linears of a range under every spec, or what `overrides` give in its place, and
/// adds what it finds to `results`, one of each spec; quantizers of one linear share their work.
/// `stored_sizes`: also those of the rows (QuantizedLayerRow::stored). Bytes of the weights are the
/// caller's to reserve. Cancelled and DeadlineExceeded as errors; all others concern one quantizer.
absl::Status QuantizeLinears(const DecoderBlock& block, absl::Span<const DecoderLinear> linears,
                             const BlockGrams& grams, absl::Span<const QuantizerSpec> specs,
                             const SpecOverrides& overrides, QuantizeBackend& backend,
                             const ExecutionContext& context, std::vector<QuantizedBlock>& results,
                             bool stored_sizes = false);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_BLOCK_QUANTIZER_H_
