#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "models/checkpoint_plan.h"
#include "models/measure_checkpoint.h"
#include "models/noise_streams.h"
#include "models/stream_along.h"
#include "models/task_batches.h"
#include "models/token_stream.h"
#include "probes/weight_noise.h"
#include "quantize/methods.h"
#include "session/curvature_batches.h"

namespace ptqwatch::internal {
namespace {

// Measuring curvature takes about 35 products with the Hessian of three gradients each, and a
// gradient three forward passes.
constexpr double kCurvaturePasses = 300;

double AsDouble(int64_t value) { return static_cast<double>(value); }

// Operations of the parts of a measurement. A multiply-add counts as two.
struct Operations {
  double products = 0;  // matrix products of LibTorch
  double grams = 0;
  double quantize = 0;
  double noise = 0;  // elements drawn
};

// Operations a second of the machine.
struct Rates {
  double products = 0;
  double grams = 0;
  double quantize = 0;
  double noise = 0;
};

// Quantizing a linear under every spec. Shared work counts once: a factor, the output energy, and
// the rounding losses that a spec of RTN computes anyway.
double QuantizeOperations(const DecoderLinear& linear, absl::Span<const QuantizerSpec> specs) {
  const double rows = AsDouble(linear.outputs);
  const double cols = AsDouble(linear.inputs);
  double sum = rows * cols * cols;
  for (size_t i = 0; i < specs.size(); ++i) {
    QuantizerSpec spec = specs[i];
    spec.baselines = false;
    sum += MethodOf(spec).flops(rows, cols, spec);
    if (!MethodOf(spec).factor) continue;
    const bool rounded = std::any_of(specs.begin(), specs.end(), [&](const QuantizerSpec& other) {
      return other.method == QuantizationMethod::kRtn && other.bits == spec.bits &&
             other.format == spec.format;
    });
    if (!rounded) sum += rows * cols * cols;
    const bool factorised = std::any_of(
        specs.begin(), specs.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const QuantizerSpec& before) {
          return MethodOf(before).factor && before.order == spec.order && before.damp == spec.damp;
        });
    if (factorised) sum -= cols * cols * cols / 3;
  }
  return sum;
}

// One sequence of `length` tokens through all blocks.
double SequenceOperations(const Decoder& decoder, int64_t length) {
  double sum = 0;
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    for (const DecoderLinear& linear : decoder.LinearsOf(block)) {
      sum += 2 * AsDouble(length) * AsDouble(linear.outputs) * AsDouble(linear.inputs);
    }
    // Scores and their product with the values, before masking.
    sum += 4 * AsDouble(length) * AsDouble(length) * AsDouble(decoder.config().hidden);
  }
  return sum;
}

double HeadOperations(const Decoder& decoder, int64_t length) {
  const ModelConfig& config = decoder.config();
  return 2 * AsDouble(length) * AsDouble(config.vocabulary) * AsDouble(config.hidden);
}

double TaskOperations(const Decoder& decoder, absl::Span<const TaskItem> tasks) {
  double sum = 0;
  for (const TaskBatch& batch : BatchTasks(tasks, decoder.config().context)) {
    sum += AsDouble(batch.tokens.size(0)) * SequenceOperations(decoder, batch.tokens.size(1) - 1) +
           HeadOperations(decoder, std::ssize(batch.targets));
  }
  return sum;
}

Operations Count(const Decoder& decoder, const TrajectoryData& data,
                 const CheckpointMeasurement& options, int64_t groups) {
  const absl::Span<const QuantizerSpec> specs = options.quantizers;
  Operations count;
  const int64_t probe = data.probe.size(1) - 1;
  const int64_t calibration = data.calibration.size(1) - 1;
  const double streams = AsDouble(std::ssize(specs) + 1);
  const double probe_operations =
      AsDouble(data.probe.size(0)) *
      (SequenceOperations(decoder, probe) + HeadOperations(decoder, probe));
  count.products = AsDouble(groups) * AsDouble(data.calibration.size(0)) *
                       SequenceOperations(decoder, calibration) +
                   streams * (probe_operations + TaskOperations(decoder, data.tasks));
  // Later groups compare their hidden states with full precision.
  count.products +=
      AsDouble((groups - 1) * data.probe.size(0)) * SequenceOperations(decoder, probe);
  if (options.loss_along) {
    count.products += AsDouble(std::ssize(specs) * std::ssize(kStreamScales)) * probe_operations;
  }
  double drawn = 0;
  if (options.noise_relative_norm > 0) {
    count.products += AsDouble(NoiseStreams::Streams(data.probe.size(0), probe)) * probe_operations;
    drawn = static_cast<double>(NoisePlan(TokenBatches(data.probe).size()).draws);
  }
  const double rows = AsDouble(groups) * AsDouble(data.calibration.size(0) * calibration);
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    const std::vector<DecoderLinear> linears = decoder.LinearsOf(block);
    for (size_t i = 0; i < linears.size(); ++i) {
      count.quantize += QuantizeOperations(linears[i], specs);
      count.noise += drawn * AsDouble(linears[i].outputs) * AsDouble(linears[i].inputs);
      if (i > 0 && linears[i].input == linears[i - 1].input) continue;
      count.grams += rows * AsDouble(linears[i].inputs) * AsDouble(linears[i].inputs);
    }
  }
  return count;
}

// The median CPU time of a piece of work, which a busy machine hardly changes. The first runs load
// code and wake threads up.
template <typename Work>
double MedianSeconds(Work work) {
  constexpr double kSeconds = 0.2;  // of all runs
  std::vector<double> runs;
  for (double sum = 0; sum < kSeconds || runs.size() < 5; sum += runs.back()) {
    const std::chrono::nanoseconds begin = Clock::Real()->ThreadCpu();
    work();
    const std::chrono::duration<double> seconds = Clock::Real()->ThreadCpu() - begin;
    runs.push_back(seconds.count());
  }
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end());
  return *middle;
}

Rates MeasureRates() {
  constexpr int64_t kRows = 512;
  constexpr int64_t kInputs = 1024;
  constexpr double kOuter = double{kRows} * kInputs * kInputs;
  at::NoGradGuard no_grad;
  ExecutionContext context;
  context.threads = at::get_num_threads();
  const at::Tensor x = at::ones({kRows, kInputs});
  const at::Tensor w = at::ones({kInputs, kInputs});
  Rates rates;
  rates.products = 2 * kOuter / MedianSeconds([&] { at::mm(x, w); });
  const MatrixView rows{x.const_data_ptr<float>(), kRows, kInputs};
  GramAccumulator sums(kInputs);
  rates.grams = kOuter / MedianSeconds([&] { sums.Add(rows, context).IgnoreError(); });
  const GramStatistics statistics = sums.Take();
  const QuantizerSpec spec{.min_tokens_ratio = 0, .baselines = false};
  const double operations = MethodOf(spec).flops(kRows, kInputs, spec);
  rates.quantize =
      operations / MedianSeconds([&] {
        Quantize({x.const_data_ptr<float>(), kRows, kInputs}, &statistics, spec, context)
            .IgnoreError();
      });
  rates.noise = double{kRows} * kInputs / MedianSeconds([&] {
                  NoisyWeight(x, 1, "rate", 0, context).status().IgnoreError();
                });
  return rates;
}

}  // namespace

CheckpointCost CostOf(const Decoder& decoder, const TrajectoryData& data,
                      const CheckpointMeasurement& options) {
  // Measured once a process: a list of checkpoints asks for the cost of each.
  static const Rates rates = MeasureRates();
  const CheckpointBytes bytes = BytesOf(decoder, data, options);
  const auto quantizers = std::ssize(options.quantizers);
  const absl::StatusOr<CheckpointLayout> found =
      LayOut(bytes, options, BytesAllowed(options.max_bytes));
  const CheckpointLayout layout =
      found.ok() ? *found : CheckpointLayout{.together = 1, .bytes = bytes.Peak(1)};
  const int64_t groups = (quantizers + layout.together - 1) / layout.together;
  const Operations count = Count(decoder, data, options, groups);
  CheckpointCost cost;
  cost.bytes = layout.bytes;
  cost.seconds = count.products / rates.products + count.grams / rates.grams +
                 count.quantize / rates.quantize + count.noise / rates.noise;
  if (options.curvature.enabled) cost.curvature_bytes = bytes.curvature;
  if (layout.curvature) {
    const int64_t length = data.probe.size(1) - 1;
    const int64_t sequences = std::min(data.probe.size(0), DefaultCurvatureSequences(length));
    cost.seconds += kCurvaturePasses * AsDouble(sequences) *
                    (SequenceOperations(decoder, length) + HeadOperations(decoder, length)) /
                    rates.products;
  }
  return cost;
}

}  // namespace ptqwatch::internal
