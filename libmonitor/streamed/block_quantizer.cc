#include "streamed/block_quantizer.h"

#include <map>
#include <memory>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "capture/capture_plan.h"

namespace ptqwatch::internal {
namespace {

// The linears that feed the Gram matrices: the first one of each input. `of_linear` gets the index
// of every linear's input.
std::vector<size_t> FeedingLinears(absl::Span<const DecoderLinear> linears,
                                   std::vector<size_t>* of_linear) {
  std::map<int, size_t> known;
  std::vector<size_t> feeding;
  for (size_t linear = 0; linear < linears.size(); ++linear) {
    const auto [input, added] = known.try_emplace(linears[linear].input, feeding.size());
    if (added) feeding.push_back(linear);
    if (of_linear != nullptr) of_linear->push_back(input->second);
  }
  return feeding;
}

}  // namespace

int64_t BlockGramBytes(absl::Span<const DecoderLinear> linears) {
  int64_t bytes = 0;
  for (size_t linear : FeedingLinears(linears, nullptr)) bytes += GramBytes(linears[linear].inputs);
  return bytes;
}

absl::StatusOr<BlockGrams> CaptureBlock(const DecoderBlock& block,
                                        absl::Span<const DecoderLinear> linears,
                                        TokenStream& calibration, QuantizeBackend& backend,
                                        const ExecutionContext& context) {
  BlockGrams result;
  const std::vector<size_t> feeding = FeedingLinears(linears, &result.of_linear);
  std::vector<std::unique_ptr<GramSum>> sums;
  for (size_t linear : feeding) {
    PTQWATCH_ASSIGN_OR_RETURN(sums.emplace_back(), backend.Sum(linears[linear].inputs));
  }
  PTQWATCH_RETURN_IF_ERROR(calibration.PassThrough(
      block, block.weights(),
      [&](size_t linear, const at::Tensor& x) {
        const size_t input = result.of_linear[linear];
        if (feeding[input] != linear) return absl::OkStatus();
        return sums[input]->Add({.tensor = x, .form = {}}, context);
      },
      context));
  for (const std::unique_ptr<GramSum>& sum : sums) {
    PTQWATCH_ASSIGN_OR_RETURN(result.grams.emplace_back(), sum->Take(context));
  }
  return result;
}

absl::StatusOr<std::vector<QuantizedBlock>> QuantizeBlock(const DecoderBlock& block,
                                                          absl::Span<const DecoderLinear> linears,
                                                          const BlockGrams& grams,
                                                          absl::Span<const QuantizerSpec> specs,
                                                          QuantizeBackend& backend,
                                                          const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  std::vector<QuantizedBlock> results(specs.size());
  for (QuantizedBlock& result : results) result.weights = block.weights();
  Stopwatch watch(context.clock);
  for (size_t linear = 0; linear < linears.size(); ++linear) {
    const int64_t outputs = linears[linear].outputs;
    const int64_t inputs = linears[linear].inputs;
    const at::Tensor weight = block.weights()[linear].contiguous();
    const LayerGram* gram = grams.grams[grams.of_linear[linear]].get();
    std::vector<QuantizeBackend::Task> tasks;
    std::vector<size_t> quantizer_of;
    for (size_t quantizer = 0; quantizer < specs.size(); ++quantizer) {
      if (!results[quantizer].status.ok()) continue;
      tasks.push_back({.weight = weight, .gram = gram, .spec = specs[quantizer]});
      quantizer_of.push_back(quantizer);
    }
    backend.Quantize(
        tasks,
        [&](size_t task, absl::StatusOr<QuantizedMatrix> quantized) {
          QuantizedBlock& result = results[quantizer_of[task]];
          result.status = quantized.status();
          if (quantized.ok()) {
            result.rows.push_back(
                RowOf(linears[linear].name, tasks[task].spec, gram, *quantized, outputs * inputs));
            const at::Tensor matrix = quantized->View(outputs, inputs);
            // Memory of LibTorch's own is aligned for its matrix products, which may round
            // otherwise in another layout than that of the checkpoint.
            if (matrix.defined()) {
              result.weights[linear] =
                  AsStored(linears[linear],
                           AsStored(linears[linear], matrix).clone(at::MemoryFormat::Contiguous));
            }
          }
          result.seconds += watch.Lap();
        },
        context);
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
  return results;
}

}  // namespace ptqwatch::internal
