#include "streamed/checkpoint_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "capture/capture_plan.h"
#include "capture/layer_selection.h"
#include "models/attention.h"
#include "probes/weight_noise.h"
#include "quantize/methods.h"
#include "snapshot/tensor_table.h"
#include "streamed/block_quantizer.h"
#include "streamed/noise_streams.h"
#include "streamed/stream_along.h"
#include "streamed/task_batches.h"
#include "streamed/token_stream.h"

namespace ptqwatch::internal {
namespace {

// Logits that the head computes at a time, in three steps, with a soft cap in four.
constexpr int64_t kLogits = int64_t{1} << 24;
// Vectors of the size of the quantized weights that measuring curvature holds (CurvatureProbe).
constexpr int64_t kCurvatureVectors = 22;

void AddReading(const Decoder& decoder, CheckpointBytes& bytes) {
  for (const std::string& name : decoder.TensorNames()) {
    const auto shape = decoder.weights().Shape(name);
    if (!shape.ok()) continue;  // reading it fails, and says why
    bytes.tensor = std::max(bytes.tensor, 4 * ElementsOf(*shape));
    bytes.reading = std::max(bytes.reading, decoder.weights().ReadingBytes(name));
  }
  bytes.tensor += bytes.reading;
}

absl::Status CheckTokens(std::string_view what, const at::Tensor& tokens,
                         const ModelConfig& config) {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(StrCat("the ", what, " tokens ", why));
  };
  if (!tokens.defined() || tokens.dim() != 2 || tokens.scalar_type() != at::kLong ||
      tokens.size(0) < 1 || tokens.size(1) < 2) {
    return refuse(StrCat("have the shape ", tokens.defined() ? ShapeText(tokens) : "none",
                         " and the type ",
                         tokens.defined() ? at::toString(tokens.scalar_type()) : "none",
                         "; expected int64 [sequences, N + 1]"));
  }
  if (tokens.size(1) - 1 > config.context) {
    return refuse(StrCat("have sequences of ", tokens.size(1) - 1,
                         " predictions; the model's context is ", config.context));
  }
  const int64_t least = tokens.min().item<int64_t>();
  const int64_t most = tokens.max().item<int64_t>();
  if (least < 0 || most >= config.vocabulary) {
    return refuse(StrCat("contain ", least < 0 ? least : most, "; the vocabulary has ",
                         config.vocabulary, " tokens"));
  }
  return absl::OkStatus();
}

// Bytes that a linear reserves under all specs: a factor is kept from one quantizer to the next.
int64_t WorkingBytesOf(const DecoderLinear& linear, const CheckpointMeasurement& options) {
  int64_t factor = 0;
  int64_t rest = 0;
  for (const QuantizerSpec& quantizer : options.quantizers) {
    const QuantizerSpec& spec = SpecForLayer(options.overrides, quantizer, linear.name);
    const int64_t own = FactorBytes(linear.inputs, spec);
    factor = std::max(factor, own);
    rest = std::max(rest, WorkingBytes(linear.outputs, linear.inputs, spec) - own);
  }
  // A matrix that is stored transposed is turned for a quantizer.
  const int64_t turned = linear.transposed ? 4 * linear.outputs * linear.inputs : 0;
  return factor + rest + turned;
}

// Numbers of a token in an expert: its rows, what each step makes of them, and what goes into the
// sum.
int64_t ExpertNumbers(const ModelConfig& config) {
  const int64_t steps = config.mixture->clamped ? 12 : 4;
  return 3 * config.hidden + steps * config.mixture->intermediate;
}

}  // namespace

int64_t ForwardBytes(const ModelConfig& config, absl::Span<const DecoderLinear> linears,
                     int64_t length) {
  const int64_t sequences = SequencesTogether(length);
  // The input, its copy and the norms of both halves.
  int64_t numbers = 6 * config.hidden + 4 * config.heads * config.head_dim;
  // Each linear's result, and what an activation, a rotation or a sum makes of it. Keys and values
  // are repeated for the heads that share them.
  for (const DecoderLinear& linear : linears) {
    if (linear.stack.empty()) numbers += 2 * linear.outputs;
  }
  // One expert after the other, which may get every token; the router and its choices, in int64.
  if (!linears.back().stack.empty()) {
    numbers += ExpertNumbers(config) + 3 * config.mixture->experts + 16 * config.mixture->chosen;
  }
  // The steps of this activation.
  if (config.activation == Activation::kGeluNew) numbers += 4 * config.intermediate;
  const int64_t pairs = length * length;
  const int64_t scores = std::min(sequences * config.heads * pairs, std::max(kMostScores, pairs));
  // Scores take four steps. The mask is made of two others.
  const int64_t steps = config.sinks ? 6 : 4;
  return 4 * (sequences * length * numbers + steps * scores + 3 * pairs);
}

CheckpointBytes BytesOf(const Decoder& decoder, const TrajectoryData& data,
                        const CheckpointMeasurement& options) {
  const int64_t length = std::max(data.probe.size(1), data.calibration.size(1)) - 1;
  int64_t activations = 0;
  CheckpointBytes bytes;
  AddReading(decoder, bytes);
  bytes.calibration = TokenStream::Bytes(decoder, data.calibration);
  bytes.probe = TokenStream::Bytes(decoder, data.probe);
  if (options.noise_relative_norm > 0) {
    bytes.noise = bytes.probe * NoiseStreams::Streams(data.probe.size(0), data.probe.size(1) - 1);
  }
  if (options.loss_along) bytes.along = bytes.probe * std::ssize(kStreamScales);
  const std::vector<TaskBatch> tasks = BatchTasks(data.tasks, decoder.config().context);
  int64_t targets = 0;
  for (const TaskBatch& batch : tasks) {
    bytes.probe += TokenStream::Bytes(decoder, batch.tokens);
    targets = std::max(targets, std::ssize(batch.targets));
  }
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    const std::vector<DecoderLinear> linears = decoder.LinearsOf(block);
    int64_t quantized = 0;
    for (const DecoderLinear& linear : linears) {
      quantized += 4 * linear.outputs * linear.inputs;
      bytes.working = std::max(bytes.working, WorkingBytesOf(linear, options));
      bytes.gram = std::max(bytes.gram, GramBytes(linear.inputs));
      if (options.noise_relative_norm > 0) {
        bytes.drawing = std::max(bytes.drawing, NoiseBytes(linear.outputs * linear.inputs));
      }
    }
    bytes.covered += quantized;
    bytes.quantized = std::max(bytes.quantized, quantized);
    bytes.block = std::max(bytes.block, decoder.BlockBytes(block));
    bytes.grams = std::max(bytes.grams, BlockGramBytes(linears));
    const int64_t forward = ForwardBytes(decoder.config(), linears, length);
    activations += forward;
    if (!linears.back().stack.empty()) {  // a graph keeps all experts of a token
      activations += 4 * SequencesTogether(length) * length *
                     (decoder.config().mixture->chosen - 1) * ExpertNumbers(decoder.config());
    }
    bytes.forward = std::max(bytes.forward, forward);
    for (const TaskBatch& batch : tasks) {
      bytes.forward = std::max(bytes.forward,
                               ForwardBytes(decoder.config(), linears, batch.tokens.size(1) - 1));
    }
  }
  if (options.loss_along) bytes.between = bytes.quantized;
  const ModelConfig& config = decoder.config();
  const int64_t steps = config.logits_softcap ? 16 : 12;  // bytes of a logit in all of them
  bytes.head = 4 * config.vocabulary * config.hidden + bytes.reading +
               steps * std::min(config.vocabulary * std::max(length, targets), kLogits) +
               12 * SequencesTogether(length) * length * config.hidden;
  // The tensors as they are read, and the replica with its loaded values.
  bytes.curvature = 12 * decoder.parameters() + kCurvatureVectors * bytes.covered + activations;
  return bytes;
}

int64_t CheckpointBytes::PeakOf(int64_t quantizers, int64_t quantizing) const {
  const int64_t streams = (quantizers + 1) * probe + noise + quantizers * along;
  const int64_t in_block = block + std::max({reading, quantizing, quantized + drawing,
                                             quantizers * quantized + between + forward});
  return std::max({tensor, calibration + streams + in_block, streams + head});
}

int64_t CheckpointBytes::Peak(int64_t quantizers) const {
  return PeakOf(quantizers, grams + std::max(forward, quantizers * quantized + working));
}

int64_t CheckpointBytes::PeakInParts(int64_t held) const {
  return PeakOf(1, held + quantized + std::max(forward, working));
}

absl::StatusOr<CheckpointLayout> LayOut(const CheckpointBytes& bytes,
                                        const CheckpointMeasurement& options, int64_t available) {
  const auto quantizers = std::ssize(options.quantizers);
  CheckpointLayout layout{.together = quantizers, .grams = bytes.grams};
  while (layout.together > 0 && bytes.Peak(layout.together) > available) --layout.together;
  layout.bytes = bytes.Peak(layout.together);
  if (layout.together == 0) {
    const int64_t least = std::min(bytes.Peak(1), bytes.PeakInParts(bytes.gram));
    if (least > available) {
      return absl::ResourceExhaustedError(StrCat("measuring a checkpoint needs ", least,
                                                 " bytes with one quantizer at a time, and ",
                                                 bytes.Peak(quantizers), " with all ", quantizers,
                                                 " together, but max_bytes = ", available));
    }
    // The parts may hold this beside the rest.
    const int64_t spare = available - bytes.PeakInParts(bytes.gram);
    layout.together = 1;
    layout.grams = std::min(bytes.gram + spare, bytes.grams);
    layout.bytes = bytes.PeakInParts(layout.grams);
  }
  layout.curvature = options.curvature.enabled && bytes.curvature <= available;
  const int64_t kept = quantizers * bytes.covered;
  layout.keep_quantized = layout.curvature && layout.together == quantizers &&
                          kept + std::max(bytes.curvature, layout.bytes) <= available;
  if (layout.keep_quantized) layout.bytes += kept;
  return layout;
}

CheckpointCost CostOf(const Decoder& decoder, const TrajectoryData& data,
                      const CheckpointMeasurement& options) {
  const CheckpointBytes bytes = BytesOf(decoder, data, options);
  const absl::StatusOr<CheckpointLayout> layout =
      LayOut(bytes, options, BytesAllowed(options.max_bytes));
  return {
      .bytes = layout.ok() ? layout->bytes : std::min(bytes.Peak(1), bytes.PeakInParts(bytes.gram)),
      .curvature_bytes = options.curvature.enabled ? bytes.curvature : 0};
}

int64_t BytesAllowed(int64_t max_bytes) {
  return max_bytes > 0 ? max_bytes : FreeMemoryBytes() / 10 * 9;
}

absl::Status CheckMeasurement(const Decoder& decoder, const TrajectoryData& data,
                              const CheckpointMeasurement& options) {
  PTQWATCH_RETURN_IF_ERROR(CheckTokens("probe", data.probe, decoder.config()));
  PTQWATCH_RETURN_IF_ERROR(CheckTokens("calibration", data.calibration, decoder.config()));
  PTQWATCH_RETURN_IF_ERROR(CheckTasks(data.tasks, decoder.config()));
  if (options.quantizers.empty()) {
    return absl::InvalidArgumentError("CheckpointMeasurement.quantizers is empty");
  }
  for (const QuantizerSpec& spec : options.quantizers) PTQWATCH_RETURN_IF_ERROR(Validate(spec));
  PTQWATCH_RETURN_IF_ERROR(ValidateOverrides(options.overrides, options.quantizers));
  std::vector<std::string> names;
  for (int64_t block = 0; block < decoder.config().blocks && !options.overrides.empty(); ++block) {
    for (const DecoderLinear& linear : decoder.LinearsOf(block)) names.push_back(linear.name);
  }
  PTQWATCH_RETURN_IF_ERROR(CheckOverridesMatch(options.overrides, names));
  PTQWATCH_RETURN_IF_ERROR(Validate(options.curvature));
  if (!(options.noise_relative_norm >= 0 && std::isfinite(options.noise_relative_norm))) {
    return absl::InvalidArgumentError(
        StrCat("CheckpointMeasurement.noise_relative_norm = ", options.noise_relative_norm,
               ": must be zero (off) or positive"));
  }
  if (options.max_bytes < 0) {
    return absl::InvalidArgumentError(
        StrCat("CheckpointMeasurement.max_bytes = ", options.max_bytes, ": must not be negative"));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
