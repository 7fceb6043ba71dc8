#ifndef PTQWATCH_PROBES_LAYER_COSTS_H_
#define PTQWATCH_PROBES_LAYER_COSTS_H_

#include <cstdint>
#include <vector>

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

/// From counted arithmetic at the rates of one core: a first guess, which the first snapshot
/// corrects.
LayerCosts CountLayerCosts(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                           int64_t batch_tokens);

/// Seconds that each quantizer takes for all layers, counted likewise.
std::vector<double> CountQuantizeSeconds(const CapturePlan& plan,
                                         const std::vector<QuantizerSpec>& quantizers,
                                         const SpecOverrides& overrides);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LAYER_COSTS_H_
