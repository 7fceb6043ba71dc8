#include "probes/layer_costs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// Rates of one core for a first guess; the first snapshot gives measured costs.
constexpr double kGramRate = 3e10;
constexpr double kQuantizeRate = 1e10;
// Rows and numbers that are added at once in a measurement.
constexpr int64_t kMostRows = 8192;
constexpr int64_t kMostNumbers = int64_t{1} << 23;

double AsReal(int64_t value) { return static_cast<double>(value); }

// Layers that cost the same.
struct Alike {
  int64_t outputs = 0;
  LayerSpecs specs;  // of each quantizer
  int64_t layers = 0;
};

std::map<int64_t, std::vector<Alike>> ByInputs(const CapturePlan& plan,
                                               const std::vector<LayerSpecs>& quantizers) {
  std::map<int64_t, std::vector<Alike>> shapes;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    LayerSpecs specs;
    for (const LayerSpecs& quantizer : quantizers) specs.push_back(quantizer[layer]);
    std::vector<Alike>& known = shapes[plan.layers[layer].inputs];
    const auto found = std::find_if(known.begin(), known.end(), [&](const Alike& alike) {
      return alike.outputs == plan.layers[layer].outputs && alike.specs == specs;
    });
    if (found != known.end()) {
      ++found->layers;
    } else {
      known.push_back({plan.layers[layer].outputs, std::move(specs), 1});
    }
  }
  return shapes;
}

// Inputs without a pattern that would make H singular. Draws from no generator: those of the
// trainer stay as they are.
at::Tensor Scattered(int64_t rows, int64_t cols, at::Device device) {
  constexpr int64_t kPrime = 65521;
  return at::arange(rows * cols, at::TensorOptions().dtype(at::kLong).device(device))
      .mul_(2654435761)
      .remainder_(kPrime)
      .to(at::kFloat)
      .sub_(kPrime / 2)
      .mul_(1.0 / kPrime)
      .view({rows, cols});
}

at::Tensor Weight(int64_t rows, int64_t cols, at::Device device) {
  return at::arange(rows * cols, at::TensorOptions().dtype(at::kFloat).device(device))
      .sin_()
      .view({rows, cols});
}

absl::Status QuantizeAlike(const Alike& alike, const LayerGram& gram, const at::Tensor& weight,
                           QuantizeBackend& backend) {
  std::vector<QuantizeBackend::Task> tasks;
  for (QuantizerSpec spec : alike.specs) {
    spec.min_tokens_ratio = 0;
    tasks.push_back({.weight = weight, .gram = &gram, .spec = spec});
  }
  absl::Status status;
  backend.Quantize(
      tasks,
      [&](size_t, absl::StatusOr<QuantizedMatrix> result) { status.Update(result.status()); }, {});
  return status;
}

}  // namespace

LayerCosts CountLayerCosts(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                           int64_t batch_tokens) {
  LayerCosts costs;
  for (int64_t inputs : plan.gram_inputs) {
    // A multiply-add counts as two operations.
    costs.gram_batch += AsReal(batch_tokens) * AsReal(inputs) * AsReal(inputs) / kGramRate;
  }
  for (const LayerSpecs& specs : quantizers) {
    for (size_t layer = 0; layer < specs.size(); ++layer) {
      const CoveredLayer& covered = plan.layers[layer];
      costs.quantize += MethodOf(specs[layer])
                            .flops(AsReal(covered.outputs), AsReal(covered.inputs), specs[layer]) /
                        kQuantizeRate;
    }
  }
  return costs;
}

std::vector<double> CountQuantizeSeconds(const CapturePlan& plan,
                                         const std::vector<QuantizerSpec>& quantizers,
                                         const SpecOverrides& overrides) {
  std::vector<double> seconds;
  for (const QuantizerSpec& spec : quantizers) {
    LayerSpecs specs;
    for (const CoveredLayer& layer : plan.layers) {
      specs.push_back(SpecForLayer(overrides, spec, layer.name));
    }
    seconds.push_back(CountLayerCosts(plan, {specs}, 0).quantize);
  }
  return seconds;
}

absl::StatusOr<LayerCosts> MeasureLayerCosts(const CapturePlan& plan,
                                             const std::vector<LayerSpecs>& quantizers,
                                             int64_t batch_tokens, QuantizeBackend& backend,
                                             absl::FunctionRef<void()> drain, Clock* clock) {
  at::NoGradGuard no_grad;
  LayerCosts costs;
  const auto seconds_of = [&](absl::FunctionRef<absl::Status()> work) -> absl::StatusOr<double> {
    drain();
    Stopwatch watch(clock);
    PTQWATCH_RETURN_IF_ERROR(work());
    drain();
    return watch.Lap();
  };
  for (const auto& [inputs, shapes] : ByInputs(plan, quantizers)) {
    const int64_t most = std::min(kMostRows, std::max<int64_t>(kMostNumbers / inputs, 1));
    const int64_t rows = std::clamp<int64_t>(batch_tokens, 1, most);
    PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<GramSum> sum, backend.Sum(inputs));
    const LayerInput input{Scattered(rows, inputs, backend.device()), {}};
    PTQWATCH_ASSIGN_OR_RETURN(const double adding, seconds_of([&] { return sum->Add(input, {}); }));
    const auto grams = std::count(plan.gram_inputs.begin(), plan.gram_inputs.end(), inputs);
    costs.gram_batch += AsReal(grams) * adding * AsReal(batch_tokens) / AsReal(rows);
    PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<LayerGram> gram, sum->Take({}));
    for (const Alike& alike : shapes) {
      const at::Tensor weight = Weight(alike.outputs, inputs, backend.device());
      PTQWATCH_ASSIGN_OR_RETURN(const double quantizing, seconds_of([&] {
                                  return QuantizeAlike(alike, *gram, weight, backend);
                                }));
      costs.quantize += AsReal(alike.layers) * quantizing;
    }
  }
  return costs;
}

}  // namespace ptqwatch::internal
