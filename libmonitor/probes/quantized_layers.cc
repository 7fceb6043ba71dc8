#include "probes/quantized_layers.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
void QuantizedLayers::Add(size_t quantizer, size_t layer, const LayerGram* gram,
                          QuantizedMatrix result) {
  const CoveredLayer& covered = plan_.layers[layer];
  const QuantizedWeight& weight = result.weight;
  Row& row = rows_[quantizer][layer];
  LayerQuantization& report = row.report;
  report.name = covered.name;
  report.status = weight.status;
  if (gram != nullptr) {
    report.tokens = gram->tokens();
    report.skipped_rows = gram->skipped_rows();
  }
  report.dead_columns = weight.dead_columns;
  if (MethodOf(specs_[quantizer][layer]).factor) report.damp = weight.damp;
  if (weight.error_parts) {
    report.dead_zone_ratio = weight.error_parts->dead_zone;
    report.grid_noise_ratio = weight.error_parts->grid_noise;
    report.scale_bias_ratio = weight.error_parts->scale_bias;
  }
  if (weight.output_energy.value_or(0) > 0) {
    if (weight.loss) report.output_error_ratio = *weight.loss / *weight.output_energy;
    if (weight.rtn_loss) report.rtn_output_error_ratio = *weight.rtn_loss / *weight.output_energy;
  }
  if (weight.status == LayerStatus::kNonFinite) {
    row.nonfinite = StrCat("layer '", covered.name, "': ", weight.status_detail);
    return;
  }
  row.displacement = result.squared_displacement;
  row.matrix = result.Take(covered.outputs, covered.inputs);  // undefined: left in full precision
}

absl::StatusOr<std::vector<Replica::Override>> QuantizedLayers::Take(size_t quantizer,
                                                                     int64_t all_parameters,
                                                                     QuantizationReport& report) {
  std::vector<Replica::Override> weights;
  double displacement = 0;
  int64_t parameters = 0;
  std::string nonfinite;
  for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    const CoveredLayer& covered = plan_.layers[layer];
    Row& row = rows_[quantizer][layer];
    report.layers.push_back(std::move(row.report));
    if (nonfinite.empty()) nonfinite = row.nonfinite;
    if (!row.matrix.defined()) continue;
    displacement += row.displacement;
    parameters += row.matrix.numel();
    weights.push_back({covered.entry, covered.AsStored(row.matrix)});
  }
  rows_[quantizer].clear();
  if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
  report.displacement_norm = std::sqrt(displacement);
  report.coverage_ratio = static_cast<double>(parameters) / static_cast<double>(all_parameters);
  return weights;
}

}  // namespace ptqwatch::internal
