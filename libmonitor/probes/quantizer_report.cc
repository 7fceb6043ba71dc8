#include "probes/quantizer_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "notices/probe_outcome.h"
#include "quantize/kernels/number_format.h"
#include "quantize/methods.h"
#include "report/layer_groups.h"

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

// Absent without codes, too.
std::optional<double> EntropyOf(const std::optional<StoredSize>& stored) {
  return stored && stored->codes > 0 ? std::optional(stored->EntropyBits()) : std::nullopt;
}

void SetStatus(const absl::Status& status, QuantizationReport& report) {
  report.status = ProbeStatusOf(status);
  if (status.ok()) return;
  report.displacement_norm.reset();
  report.entropy_bits.reset();
  report.artifact_bytes.reset();
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
    row.output_energy = *weight.output_energy;
    if (weight.loss) report.output_error_ratio = *weight.loss / *weight.output_energy;
    if (weight.rtn_loss) report.rtn_output_error_ratio = *weight.rtn_loss / *weight.output_energy;
  }
  if (weight.status == LayerStatus::kNonFinite) {
    row.nonfinite = StrCat("layer '", layer, "': ", weight.status_detail);
  } else if (result.on_device.defined() || !weight.dequantized.empty()) {
    row.parameters = parameters;
    row.squared_displacement = result.squared_displacement;
  }
  row.stored = result.stored;
  report.entropy_bits = EntropyOf(row.stored);
  return row;
}

namespace {

// The later the worse.
constexpr std::array kFromBestToWorst = {LayerStatus::kOk,           LayerStatus::kDamped,
                                         LayerStatus::kTooFewTokens, LayerStatus::kRtnFallback,
                                         LayerStatus::kUnsupported,  LayerStatus::kNonFinite};

std::optional<LayerStatus> Worse(std::optional<LayerStatus> a, std::optional<LayerStatus> b) {
  const auto rank = [](std::optional<LayerStatus> status) {
    return status ? std::find(kFromBestToWorst.begin(), kFromBestToWorst.end(), *status)
                  : kFromBestToWorst.begin();
  };
  return rank(a) < rank(b) || !a ? b : a;
}

// By linear interpolation between the sorted values.
double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - std::floor(place));
}

// The mean over the layers that have the value.
class Average {
 public:
  void Add(std::optional<double> value, double weight = 1) {
    if (!value || !std::isfinite(*value)) return;
    sum_ += weight * *value;
    weights_ += weight;
  }
  std::optional<double> value() const {
    return weights_ > 0 ? std::optional(sum_ / weights_) : std::nullopt;
  }

 private:
  double sum_ = 0;
  double weights_ = 0;
};

void AddSize(const std::optional<StoredSize>& size, std::optional<StoredSize>& sum) {
  if (!size) return;
  if (!sum) sum.emplace();
  *sum += *size;
}

LayerQuantization StackRow(const GroupedLayers& group, const std::vector<QuantizedLayerRow>& rows) {
  LayerQuantization stack;
  stack.name = group.name;
  stack.stacked = std::ssize(group.members);
  stack.stacked_ok = 0;
  Average error, rtn_error, dead_zone, grid_noise, scale_bias, accumulated;
  std::vector<double> errors;
  std::optional<StoredSize> stored;
  for (const size_t member : group.members) {
    const QuantizedLayerRow& row = rows[member];
    const LayerQuantization& layer = row.report;
    *stack.stacked_ok += layer.status == LayerStatus::kOk ? 1 : 0;
    stack.status = Worse(stack.status, layer.status);
    stack.tokens += layer.tokens;
    stack.skipped_rows += layer.skipped_rows;
    if (layer.dead_columns) {
      stack.dead_columns = stack.dead_columns.value_or(0) + *layer.dead_columns;
    }
    if (layer.damp) stack.damp = std::max(stack.damp.value_or(0), *layer.damp);
    const double outputs = row.output_energy * static_cast<double>(layer.tokens);
    error.Add(layer.output_error_ratio, outputs);
    rtn_error.Add(layer.rtn_output_error_ratio, outputs);
    dead_zone.Add(layer.dead_zone_ratio);
    grid_noise.Add(layer.grid_noise_ratio);
    scale_bias.Add(layer.scale_bias_ratio);
    accumulated.Add(layer.accumulated_error_ratio);
    AddSize(row.stored, stored);
    if (layer.output_error_ratio && std::isfinite(*layer.output_error_ratio)) {
      errors.push_back(*layer.output_error_ratio);
    }
  }
  stack.output_error_ratio = error.value();
  stack.rtn_output_error_ratio = rtn_error.value();
  stack.dead_zone_ratio = dead_zone.value();
  stack.grid_noise_ratio = grid_noise.value();
  stack.scale_bias_ratio = scale_bias.value();
  stack.accumulated_error_ratio = accumulated.value();
  stack.entropy_bits = EntropyOf(stored);
  if (errors.empty()) return stack;
  std::sort(errors.begin(), errors.end());
  stack.output_error_p10_ratio = Quantile(errors, 0.1);
  stack.output_error_median_ratio = Quantile(errors, 0.5);
  stack.output_error_p90_ratio = Quantile(errors, 0.9);
  return stack;
}

void AddLayers(std::vector<QuantizedLayerRow>& rows, std::vector<LayerQuantization>& layers) {
  const auto name_of = [&](size_t i) { return std::string_view(rows[i].report.name); };
  const auto error_of = [&](size_t i) { return rows[i].report.output_error_ratio.value_or(NAN); };
  for (const GroupedLayers& group : GroupLayers(rows.size(), name_of)) {
    if (!group.stacked()) {
      layers.push_back(std::move(rows[group.members[0]].report));
      continue;
    }
    layers.push_back(StackRow(group, rows));
    for (const size_t member : LargestMembers(group, error_of)) {
      layers.push_back(std::move(rows[member].report));
    }
  }
}

}  // namespace

absl::Status AddRows(std::vector<QuantizedLayerRow> rows, int64_t all_parameters,
                     QuantizationReport& report) {
  double displacement = 0;
  int64_t parameters = 0;
  std::string nonfinite;
  std::optional<StoredSize> stored;
  bool all_sized = true;
  for (QuantizedLayerRow& row : rows) {
    if (nonfinite.empty()) nonfinite = std::move(row.nonfinite);
    displacement += row.squared_displacement;
    parameters += row.parameters;
    AddSize(row.stored, stored);
    all_sized &= row.stored.has_value() || row.parameters == 0;
  }
  AddLayers(rows, report.layers);
  if (!nonfinite.empty()) return absl::DataLossError(nonfinite);
  report.displacement_norm = std::sqrt(displacement);
  report.coverage_ratio = static_cast<double>(parameters) / static_cast<double>(all_parameters);
  if (stored && all_sized) {
    report.entropy_bits = EntropyOf(stored);
    report.artifact_bytes = stored->Bytes() + kUnquantizedBytes * (all_parameters - parameters);
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
