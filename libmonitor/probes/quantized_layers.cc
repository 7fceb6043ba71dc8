#include "probes/quantized_layers.h"

#include <utility>

#include "base/status_macros.h"

namespace ptqwatch::internal {

void QuantizedLayers::Add(size_t quantizer, size_t layer, const LayerGram* gram,
                          QuantizedMatrix result) {
  const CoveredLayer& covered = plan_.layers[layer];
  QuantizedLayerRow& row = rows_[quantizer][layer];
  row =
      RowOf(covered.name, specs_[quantizer][layer], gram, result, covered.outputs * covered.inputs);
  // Undefined: left in full precision.
  if (row.nonfinite.empty()) {
    matrices_[quantizer][layer] = result.Take(covered.outputs, covered.inputs);
  }
}

std::vector<bool> QuantizedLayers::FallenBack(size_t quantizer) const {
  std::vector<bool> fallen;
  for (const QuantizedLayerRow& row : rows_[quantizer]) {
    fallen.push_back(row.report.status == LayerStatus::kTooFewTokens);
  }
  return fallen;
}

absl::StatusOr<std::vector<Replica::Override>> QuantizedLayers::Take(size_t quantizer,
                                                                     int64_t all_parameters,
                                                                     QuantizationReport& report) {
  const std::vector<at::Tensor> matrices = std::exchange(matrices_[quantizer], {});
  PTQWATCH_RETURN_IF_ERROR(AddRows(std::exchange(rows_[quantizer], {}), all_parameters, report));
  std::vector<Replica::Override> weights;
  for (size_t layer = 0; layer < matrices.size(); ++layer) {
    if (!matrices[layer].defined()) continue;
    const CoveredLayer& covered = plan_.layers[layer];
    weights.push_back({covered.entry, covered.AsStored(matrices[layer])});
  }
  return weights;
}

}  // namespace ptqwatch::internal
