#ifndef PTQWATCH_PROBES_LAYER_COSTS_H_
#define PTQWATCH_PROBES_LAYER_COSTS_H_

#include <cstdint>
#include <vector>

#include "c10/core/Device.h"
#include "capture/capture_plan.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Seconds of work on the layers of a model, without forward passes.
struct LayerCosts {
  double gram_batch = 0;  ///< adding a calibration batch to every Gram matrix
  double quantize = 0;    ///< every layer under every quantizer
};

/// Operations a second of the engine, for a first guess, which the first snapshot corrects.
struct EngineRates {
  double gram = 3e10;  ///< of a core
  double quantize = 1e10;
};
/// If `device` is a GPU, the rates of an H200 with layers of 768 to 4096 inputs.
EngineRates RatesOn(at::Device device);

/// From counted arithmetic.
LayerCosts CountLayerCosts(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                           int64_t batch_tokens, const EngineRates& rates = {});

/// Seconds that each quantizer takes for all layers on a core, counted likewise.
std::vector<double> CountQuantizeSeconds(const CapturePlan& plan,
                                         const std::vector<QuantizerSpec>& quantizers,
                                         const SpecOverrides& overrides);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LAYER_COSTS_H_
