#include "probes/quantized_layers.h"

#include <cmath>
#include <memory>
#include <utility>

#include "ATen/ops/from_blob.h"
#include "absl/status/status.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// The values as a [rows, cols] tensor, without a copy.
at::Tensor AsTensor(std::vector<float> values, int64_t rows, int64_t cols) {
  auto owned = std::make_shared<std::vector<float>>(std::move(values));
  float* data = owned->data();
  return at::from_blob(
      data, {rows, cols}, [owned](void*) mutable { owned.reset(); }, at::kFloat);
}

}  // namespace

void QuantizedLayers::Add(size_t quantizer, size_t layer, MatrixView weight,
                          const GramStatistics* statistics, QuantizedWeight result) {
  const CoveredLayer& covered = plan_.layers[layer];
  Row& row = rows_[quantizer][layer];
  LayerQuantization& report = row.report;
  report.name = covered.name;
  report.status = result.status;
  if (statistics != nullptr) {
    report.tokens = statistics->tokens;
    report.skipped_rows = statistics->skipped_rows;
  }
  report.dead_columns = result.dead_columns;
  if (specs_[quantizer][layer].method == QuantizationMethod::kGptq) report.damp = result.damp;
  if (result.output_energy.value_or(0) > 0) {
    if (result.loss) report.output_error_ratio = *result.loss / *result.output_energy;
    if (result.rtn_loss) report.rtn_output_error_ratio = *result.rtn_loss / *result.output_energy;
  }
  if (result.status == LayerStatus::kNonFinite) {
    row.nonfinite = StrCat("layer '", covered.name, "': ", result.status_detail);
  } else if (!result.dequantized.empty()) {  // else it stays in full precision
    for (size_t i = 0; i < result.dequantized.size(); ++i) {
      const double step = static_cast<double>(result.dequantized[i]) - weight.data[i];
      row.displacement += step * step;
    }
    row.matrix = AsTensor(std::move(result.dequantized), covered.outputs, covered.inputs);
  }
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
