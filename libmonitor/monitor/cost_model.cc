#include "monitor/cost_model.h"

#include <algorithm>
#include <cmath>

#include "curvature/measurement_cost.h"
#include "quantize/working_bytes.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kMinUnits = 8;
constexpr int64_t kFloat = 4;
// Reads and writes of the activations on both sides of a product in a forward pass: the product's
// own, and those of the norm, the non-linearity or the residual sum beside it.
constexpr double kTouches = 10;
// Of an attention score: the product's, the mask's and the softmax's.
constexpr double kScoreTouches = 20;
constexpr double kOperatorsAProduct = 6;
// A backward pass does two products for each of the forward pass, and more of the rest.
constexpr double kForwardsAGradient = 3.8;
// A graph keeps both sides of every product and what lies between them, and their gradients.
constexpr double kKeptActivations = 2.4;
constexpr double kKeptScores = 3;
// The graph of a gradient, and that of a product while it is made.
constexpr double kGraphsAProduct = 2.2;
// Of LibTorch and MKL, for a thread of their own.
constexpr int64_t kFixedBytes = 34'000'000;
// Logits, their logarithms and what a softmax needs.
constexpr int64_t kHeldLogits = 3;
constexpr int64_t kMostGraphBytes = int64_t{1} << 30;
constexpr int64_t kMostVectorBytes = int64_t{1} << 30;
// Vectors of a search that ends at the usual precision, and those kept beside it.
constexpr int64_t kSearchVectors = 12;
constexpr int64_t kOtherVectors = 8;

double Real(int64_t value) { return static_cast<double>(value); }

// Between the two widths beside `inputs`, evenly in its logarithm.
template <typename Rate>
double At(const MachineRates& rates, int64_t inputs, Rate rate) {
  const auto& widths = rates.widths;
  if (inputs <= widths.front().inputs) return rate(widths.front());
  for (size_t i = 1; i < widths.size(); ++i) {
    if (inputs > widths[i].inputs) continue;
    const double share = std::log(Real(inputs) / Real(widths[i - 1].inputs)) /
                         std::log(Real(widths[i].inputs) / Real(widths[i - 1].inputs));
    return (1 - share) * rate(widths[i - 1]) + share * rate(widths[i]);
  }
  return rate(widths.back());
}

int64_t MostInputs(const ModelShapes& model) {
  int64_t most = 1;
  for (const int64_t inputs : model.gram_inputs) most = std::max(most, inputs);
  return most;
}

int64_t Activations(const ModelShapes& model) {
  int64_t activations = 0;
  for (const ProductShape& product : model.products)
    activations += product.outputs + product.inputs;
  return activations;
}

int64_t ScoresAToken(const ModelShapes& model, int64_t sequence_tokens) {
  return model.attention_blocks * model.attention_heads * sequence_tokens;
}

}  // namespace

int64_t ModelShapes::quantized_parameters() const {
  int64_t sum = 0;
  for (const ProductShape& product : products) {
    if (product.gram >= 0) sum += product.outputs * product.inputs;
  }
  return sum;
}

double GramFlop(int64_t tokens, int64_t inputs) {
  return Real(tokens) * Real(inputs) * Real(inputs);
}

double QuantizeFlop(const QuantizerSpec& spec, int64_t outputs, int64_t inputs) {
  const double square = Real(inputs) * Real(inputs);
  // ptqwatch/quantizer.h counts the multiply-adds. Beside the codes there are up to two losses.
  const double losses = (spec.baselines ? 2 : 0) * Real(outputs) * square;
  switch (spec.method) {
    case QuantizationMethod::kGptq:
      return square * (Real(inputs) / 3 + Real(outputs)) + losses;
    case QuantizationMethod::kAwq:
      return 21 * Real(outputs) * square;
    default:
      return Real(outputs) * square + losses + 10 * Real(outputs) * Real(inputs);
  }
}

double ForwardSeconds(const ModelShapes& model, int64_t sequences, int64_t sequence_tokens,
                      const MachineRates& rates) {
  const double tokens = Real(sequences) * Real(sequence_tokens);
  double flop = 0;
  for (const ProductShape& product : model.products) {
    flop += 2 * Real(product.outputs) * Real(product.inputs);
  }
  flop += 4 * Real(model.attention_blocks) * Real(model.attention_width) * Real(sequence_tokens);
  const double touched = kTouches * Real(Activations(model)) +
                         kScoreTouches * Real(ScoresAToken(model, sequence_tokens));
  const double operators = kOperatorsAProduct * Real(std::ssize(model.products));
  return tokens * (flop / rates.product + touched * rates.activation_seconds) +
         operators * rates.operator_seconds;
}

int64_t MinProbeBatches(int64_t units_a_batch) {
  return (kMinUnits + units_a_batch - 1) / units_a_batch;
}

int64_t MinCalibrationBatches(int64_t most_inputs, int64_t tokens_a_batch) {
  return (most_inputs / 2 + tokens_a_batch - 1) / tokens_a_batch;
}

PlanRange RangeFromShapes(const ModelShapes& model, const DataShapes& data, int64_t quantizers) {
  return {.quantizers = quantizers,
          .probe_batches = data.probe_batches,
          .min_probe_batches = MinProbeBatches(data.batch_sequences),
          .calibration_batches = data.calibration_batches,
          .min_calibration_batches = MinCalibrationBatches(MostInputs(model), data.batch_tokens()),
          .curvature_sequences = data.curvature_sequences};
}

SnapshotCosts CostsFromShapes(const ModelShapes& model, const DataShapes& data,
                              const std::vector<QuantizerSpec>& quantizers, int64_t max_gram_bytes,
                              const MachineRates& rates) {
  SnapshotCosts costs;
  costs.probe_batch = ForwardSeconds(model, data.batch_sequences, data.sequence_tokens, rates);
  costs.calibration_batch =
      Real(PassesOver(model.gram_inputs, max_gram_bytes).passes) * costs.probe_batch;
  for (const int64_t inputs : model.gram_inputs) {
    costs.calibration_batch +=
        GramFlop(data.batch_tokens(), inputs) /
        At(rates, inputs, [](const MachineRates::OfWidth& width) { return width.gram; });
  }
  for (size_t i = 0; i < quantizers.size(); ++i) {
    QuantizerSpec spec = quantizers[i];
    // The quantizers of a layer share what all of them are compared with.
    spec.baselines = spec.baselines && i == 0;
    for (const ProductShape& product : model.products) {
      if (product.gram < 0) continue;
      costs.quantize += QuantizeFlop(spec, product.outputs, product.inputs) /
                        At(rates, product.inputs,
                           [i](const MachineRates::OfWidth& width) { return width.quantize[i]; });
    }
  }
  // Of a gradient; the operators are called once a batch, however many sequences it has.
  const double none = ForwardSeconds(model, 0, data.sequence_tokens, rates);
  const double one = ForwardSeconds(model, 1, data.sequence_tokens, rates);
  const double forwards = kForwardsAGradient * kGradientsAMeasurement;
  costs.curvature_fixed = forwards * none;
  costs.curvature_sequence = forwards * (one - none);
  return costs;
}

GramPasses PassesOver(const std::vector<int64_t>& gram_inputs, int64_t max_bytes) {
  GramPasses passes;
  int64_t held = 0;
  for (const int64_t inputs : gram_inputs) {
    const int64_t bytes = 8 * inputs * inputs;
    if (passes.passes == 0 || bytes > max_bytes - held) {
      ++passes.passes;
      held = 0;
    }
    held += bytes;
    passes.largest_bytes = std::max(passes.largest_bytes, held);
  }
  return passes;
}

int64_t SnapshotBytes::peak() const {
  return held() + kFixedBytes +
         std::max(quantized + grams + factors + forward, quantized + vectors + graphs);
}

SnapshotBytes BytesFromShapes(const ModelShapes& model, const DataShapes& data, const Plan& plan,
                              const std::vector<QuantizerSpec>& quantizers,
                              int64_t max_gram_bytes) {
  SnapshotBytes bytes;
  bytes.staging = model.tensor_bytes;
  bytes.replica = 2 * model.tensor_bytes;
  const int64_t vector = kFloat * model.quantized_parameters();
  bytes.quantized = std::ssize(quantizers) * vector;
  bytes.grams = PassesOver(model.gram_inputs, max_gram_bytes).largest_bytes;
  int64_t widest = 0;
  for (const ProductShape& product : model.products) {
    widest = std::max(widest, product.outputs);
    if (product.gram < 0) continue;
    for (const QuantizerSpec& spec : quantizers) {
      bytes.factors = std::max(bytes.factors, WorkingBytes(product.outputs, product.inputs, spec));
    }
  }
  if (data.averaged_snapshots > 0) {
    bytes.averages = (data.averaged_snapshots + 1) * model.tensor_bytes;
  }
  bytes.forward = kHeldLogits * kFloat * widest * data.batch_tokens();
  if (data.curvature_sequences == 0) return bytes;
  bytes.optimizer = 2 * vector;
  bytes.vectors = kOtherVectors * vector +
                  std::min(kSearchVectors * vector, std::max(kMostVectorBytes, 6 * vector));
  const double kept = kKeptActivations * Real(Activations(model)) +
                      kKeptScores * Real(ScoresAToken(model, data.sequence_tokens));
  const double tokens = Real(plan.curvature_sequences * data.sequence_tokens);
  bytes.graphs = static_cast<int64_t>(
      kGraphsAProduct * std::min(Real(kFloat) * kept * tokens, Real(kMostGraphBytes)));
  return bytes;
}

}  // namespace ptqwatch::internal
