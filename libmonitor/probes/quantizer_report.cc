#include "probes/quantizer_report.h"

#include <cmath>
#include <utility>

#include "base/strings.h"
#include "notices/probe_outcome.h"
#include "quantize/kernels/number_format.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {

QuantizationReport ReportOf(const QuantizerSpec& spec) {
  QuantizationReport report;
  report.method = spec.method;
  report.bits = spec.bits;
  const NumberFormat& numbers = NumbersOf(spec);
  const std::string format = FormatOf(spec);
  // Absent by default, as in journals of earlier versions.
  if (format != FormatOf(spec.method)) report.format = format;
  if (numbers.scale == GroupScale::kE8m0) report.scale_rule = ToString(spec.scale_rule);
  report.group_size = !MethodOf(spec).grid     ? MethodOf(spec).group_size
                      : numbers.group_size > 0 ? numbers.group_size
                                               : spec.group_size;
  report.symmetric = spec.symmetric || numbers.is_float();
  return report;
}

void SetStatus(const absl::Status& status, QuantizationReport& report) {
  report.status = ProbeStatusOf(status);
  if (status.ok()) return;
  report.displacement_norm.reset();
  report.status_detail = StrCat(status);
}

QuantizedLayerRow RowOf(std::string_view layer, const QuantizerSpec& spec, const LayerGram* gram,
                        const QuantizedMatrix& result, int64_t parameters) {
  const QuantizedWeight& weight = result.weight;
  QuantizedLayerRow row;
  LayerQuantization& report = row.report;
  report.name = layer;
  report.status = weight.status;
  if (gram != nullptr) {
    report.tokens = gram->tokens();
    report.skipped_rows = gram->skipped_rows();
  }
  report.dead_columns = weight.dead_columns;
  if (MethodOf(spec).factor) report.damp = weight.damp;
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
    row.nonfinite = StrCat("layer '", layer, "': ", weight.status_detail);
  } else if (result.on_device.defined() || !weight.dequantized.empty()) {
    row.parameters = parameters;
    row.squared_displacement = result.squared_displacement;
  }
  return row;
}

absl::Status AddRows(std::vector<QuantizedLayerRow> rows, int64_t all_parameters,
                     QuantizationReport& report) {
  double displacement = 0;
  int64_t parameters = 0;
  std::string nonfinite;
  for (QuantizedLayerRow& row : rows) {
    report.layers.push_back(std::move(row.report));
    if (nonfinite.empty()) nonfinite = std::move(row.nonfinite);
    displacement += row.squared_displacement;
    parameters += row.parameters;
  }
  if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
  report.displacement_norm = std::sqrt(displacement);
  report.coverage_ratio = static_cast<double>(parameters) / static_cast<double>(all_parameters);
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
