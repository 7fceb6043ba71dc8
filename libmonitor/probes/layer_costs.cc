#include "probes/layer_costs.h"

#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

double AsReal(int64_t value) { return static_cast<double>(value); }

}  // namespace

EngineRates RatesOn(at::Device device) {
  return device.is_cuda() ? EngineRates{.gram = 3e13, .quantize = 3e12} : EngineRates{};
}

LayerCosts CountLayerCosts(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                           int64_t batch_tokens, const EngineRates& rates) {
  LayerCosts costs;
  for (int64_t inputs : plan.gram_inputs) {
    // A multiply-add counts as two operations.
    costs.gram_batch += AsReal(batch_tokens) * AsReal(inputs) * AsReal(inputs) / rates.gram;
  }
  for (const LayerSpecs& specs : quantizers) {
    for (size_t layer = 0; layer < specs.size(); ++layer) {
      const CoveredLayer& covered = plan.layers[layer];
      costs.quantize += MethodOf(specs[layer])
                            .flops(AsReal(covered.outputs), AsReal(covered.inputs), specs[layer]) /
                        rates.quantize;
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

}  // namespace ptqwatch::internal
