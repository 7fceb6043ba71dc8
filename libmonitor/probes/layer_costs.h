#ifndef PTQWATCH_PROBES_LAYER_COSTS_H_
#define PTQWATCH_PROBES_LAYER_COSTS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "capture/capture_plan.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "capture/quantize_backend.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// Seconds of a backend's work on the layers of a model, without forward passes.
struct LayerCosts {
  double gram_batch = 0;  ///< adding a calibration batch to every Gram matrix
  double quantize = 0;    ///< every layer under every quantizer
};

/// From counted arithmetic at the rates of one core.
LayerCosts CountLayerCosts(const CapturePlan& plan, const std::vector<LayerSpecs>& quantizers,
                           int64_t batch_tokens);

/// Seconds that each quantizer takes for all layers, counted likewise.
std::vector<double> CountQuantizeSeconds(const CapturePlan& plan,
                                         const std::vector<QuantizerSpec>& quantizers,
                                         const SpecOverrides& overrides);

/// Measured: the backend adds up float32 rows for each number of inputs, and quantizes a weight of
/// each shape under its quantizers, once. The backend must have done such work before, as
/// MakeBackend lets it: the first time may include loading code. A device has no rate that would
/// suit all shapes. `drain` waits for the backend. Takes about as long as quantizing a layer of
/// each shape, and about 100 MB beside the weight. Errors are the backend's. May throw c10::Error.
absl::StatusOr<LayerCosts> MeasureLayerCosts(const CapturePlan& plan,
                                             const std::vector<LayerSpecs>& quantizers,
                                             int64_t batch_tokens, QuantizeBackend& backend,
                                             absl::FunctionRef<void()> drain, Clock* clock);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LAYER_COSTS_H_
