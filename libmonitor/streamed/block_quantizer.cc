#include "streamed/block_quantizer.h"

#include <map>
#include <memory>
#include <utility>

#include "ATen/core/grad_mode.h"
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

std::vector<LinearRange> DivideByGrams(absl::Span<const DecoderLinear> linears, int64_t max_bytes) {
  std::vector<LinearRange> ranges;
  int64_t held = 0;
  for (size_t linear = 0; linear < linears.size(); ++linear) {
    const bool is_new = linear == 0 || linears[linear].input != linears[linear - 1].input;
    const int64_t bytes = is_new ? GramBytes(linears[linear].inputs) : 0;
    if (ranges.empty() || (is_new && bytes > max_bytes - held)) {
      ranges.push_back({linear, linear});
      held = 0;
    }
    held += bytes;
    ranges.back().end = linear + 1;
  }
  return ranges;
}

int64_t BlockGramBytes(absl::Span<const DecoderLinear> linears) {
  int64_t bytes = 0;
  for (size_t linear : FeedingLinears(linears, nullptr)) bytes += GramBytes(linears[linear].inputs);
  return bytes;
}

absl::StatusOr<BlockGrams> CaptureBlock(const DecoderBlock& block,
                                        absl::Span<const DecoderLinear> linears, LinearRange range,
                                        TokenStream& calibration, QuantizeBackend& backend,
                                        const ExecutionContext& context) {
  BlockGrams result{.range = range, .tokens = calibration.tokens()};
  const auto captured = linears.subspan(range.first, range.end - range.first);
  const std::vector<size_t> feeding = FeedingLinears(captured, &result.of_linear);
  std::vector<std::unique_ptr<GramSum>> sums;
  for (size_t linear : feeding) {
    PTQWATCH_ASSIGN_OR_RETURN(sums.emplace_back(), backend.Sum(captured[linear].inputs));
  }
  const auto on_input = [&](size_t linear, const at::Tensor& x) {
    if (linear < range.first || linear >= range.end) return absl::OkStatus();
    const size_t input = result.of_linear[linear - range.first];
    if (feeding[input] != linear - range.first) return absl::OkStatus();
    return sums[input]->Add({.tensor = x, .form = {}}, context);
  };
  PTQWATCH_RETURN_IF_ERROR(
      range.end == linears.size()
          ? calibration.PassThrough(block, block.weights(), on_input, context)
          : calibration.LookThrough(block, block.weights(), on_input, context));
  for (const std::unique_ptr<GramSum>& sum : sums) {
    PTQWATCH_ASSIGN_OR_RETURN(result.grams.emplace_back(), sum->Take(context));
  }
  return result;
}

absl::Status QuantizeLinears(const DecoderBlock& block, absl::Span<const DecoderLinear> linears,
                             const BlockGrams& grams, absl::Span<const QuantizerSpec> specs,
                             const SpecOverrides& overrides, QuantizeBackend& backend,
                             const ExecutionContext& context, std::vector<QuantizedBlock>& results,
                             bool stored_sizes) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  for (size_t linear = grams.range.first; linear < grams.range.end; ++linear) {
    const int64_t outputs = linears[linear].outputs;
    const int64_t inputs = linears[linear].inputs;
    const at::Tensor weight = block.weights()[linear].contiguous();
    const LayerGram* gram = grams.grams[grams.of_linear[linear - grams.range.first]].get();
    std::vector<QuantizeBackend::Task> tasks;
    std::vector<size_t> quantizer_of;
    for (size_t quantizer = 0; quantizer < specs.size(); ++quantizer) {
      if (!results[quantizer].status.ok()) continue;
      const std::string& name = linears[linear].name;
      const QuantizerSpec& spec = SpecForLayer(overrides, specs[quantizer], name);
      tasks.push_back({.weight = weight,
                       .gram = gram,
                       .spec = SpecWithRows(name, inputs, spec, grams.tokens),
                       .stored_size = stored_sizes});
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
            const at::Tensor matrix = quantized->Take(outputs, inputs);
            if (!matrix.defined()) {  // the layer keeps its weight
            } else if (linears[linear].stack.empty() && !linears[linear].transposed) {
              result.weights[linear] = matrix;
            } else {
              result.weights[linear] = result.memory.Empty(linear).copy_(matrix);
            }
          }
          result.seconds += watch.Lap();
        },
        context);
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
