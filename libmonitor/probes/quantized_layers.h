#ifndef PTQWATCH_PROBES_QUANTIZED_LAYERS_H_
#define PTQWATCH_PROBES_QUANTIZED_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "capture/capture_plan.h"
#include "capture/model_quantizer.h"
#include "probes/quantizer_report.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Collects the quantized layers of several quantizers in the order of the work. Holds one float
/// copy of the quantized weights per quantizer.
class QuantizedLayers {
 public:
  /// `specs` has one element per quantizer. Both must outlive this.
  QuantizedLayers(const CapturePlan& plan, const std::vector<LayerSpecs>& specs)
      : plan_(plan),
        specs_(specs),
        rows_(specs.size(), std::vector<QuantizedLayerRow>(plan.layers.size())),
        matrices_(specs.size(), std::vector<at::Tensor>(plan.layers.size())) {}

  /// Takes the arguments of OnQuantizedLayer.
  void Add(size_t quantizer, size_t layer, const LayerGram* gram, QuantizedMatrix result);

  /// Whether each layer of the plan is rounded to nearest because it met too few rows. REQUIRES:
  /// Take was not called for this quantizer.
  std::vector<bool> FallenBack(size_t quantizer) const;

  /// Moves the layers of one quantizer into its report, in the order of the plan, and returns the
  /// weights. `all_parameters` counts the parameters of the model. DataLoss if a layer is not
  /// finite.
  absl::StatusOr<std::vector<Replica::Override>> Take(size_t quantizer, int64_t all_parameters,
                                                      QuantizationReport& report);

 private:
  const CapturePlan& plan_;
  const std::vector<LayerSpecs>& specs_;
  // [quantizer][layer]
  std::vector<std::vector<QuantizedLayerRow>> rows_;
  std::vector<std::vector<at::Tensor>> matrices_;  // dequantized; undefined: left as it is
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZED_LAYERS_H_
