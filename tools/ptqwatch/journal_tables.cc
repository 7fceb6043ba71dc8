#include "journal_tables.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/strings.h"
#include "csv_row.h"
#include "printable.h"
#include "report_table.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace {

std::optional<double> Sum(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return std::nullopt;
  return *a + *b;
}

// Unmeasured layers come last.
double Weight(const LayerRow& row, size_t watched, bool by_contribution) {
  const auto value = by_contribution ? row.contribution : row.output_error_ratios[watched];
  return value.value_or(-std::numeric_limits<double>::infinity());
}

std::string PercentCell(const std::optional<double>& ratio) {
  return ratio ? StrFormat("%.2f%%", 100 * *ratio) : "-";
}

std::string ScientificCell(const std::optional<double>& value) {
  return value ? StrFormat("%.3g", *value) : "-";
}

// LayerRow::lacking for one quantizer.
std::string Lacking(const LayerQuantization& layer) {
  if (layer.stacked && layer.stacked_ok && *layer.stacked_ok < *layer.stacked) {
    return StrCat(*layer.stacked - *layer.stacked_ok, " of ", *layer.stacked, " not ok");
  }
  return !layer.stacked && layer.status == LayerStatus::kTooFewTokens ? "too few" : "";
}

}  // namespace

std::string HistoryCsvHeader() {
  return "run_id,attempt,sequence,step,tokens,learning_rate,lr_phase,probe_loss_nats,"
         "probe_loss_stderr_nats,method,bits,group_size,status,loss_nats,delta_nats,"
         "delta_stderr_nats,error_ratio,error_ratio_stderr,displacement_norm,top_eigenvalue,trace,"
         "trace_stderr,weighted_trace,verdict,format,branch,noise_delta_nats,"
         "noise_delta_stderr_nats,entropy_bits,artifact_bytes,bytes_per_token";
}

std::vector<std::string> HistoryCsv(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  const auto line = [&](const QuantizationReport* entry) {
    CsvRow row;
    row.Add(report.run_id).Add(int64_t{report.attempt}).Add(report.sequence).Add(report.step);
    row.Add(report.tokens).Add(report.learning_rate).Add(ToString(report.lr_phase));
    row.Add(report.probe_loss_nats).Add(report.probe_loss_stderr_nats);
    if (entry != nullptr) {
      row.Add(ToString(entry->method)).Add(int64_t{entry->bits}).Add(int64_t{entry->group_size});
      row.Add(ToString(entry->status)).Add(entry->loss_nats).Add(entry->delta_nats);
      row.Add(entry->delta_stderr_nats).Add(entry->error_ratio).Add(entry->error_ratio_stderr);
      row.Add(entry->displacement_norm);
    } else {
      for (int i = 0; i < 10; ++i) row.Add(std::string_view());
    }
    const CurvatureReport curvature = report.curvature.value_or(CurvatureReport());
    row.Add(curvature.top_eigenvalue).Add(curvature.trace).Add(curvature.trace_stderr);
    row.Add(curvature.weighted_trace).Add(ToString(analyzed.verdict.state));
    row.Add(entry != nullptr ? KeyOf(*entry).format : "").Add(report.branch.value_or(""));
    const NoiseReport noise = report.noise.value_or(NoiseReport());
    row.Add(noise.delta_nats).Add(noise.delta_stderr_nats);
    const QuantizationReport sized = entry != nullptr ? *entry : QuantizationReport();
    row.Add(sized.entropy_bits).Add(sized.artifact_bytes).Add(report.bytes_per_token);
    return row.text();
  };
  std::vector<std::string> lines;
  for (const QuantizationReport& entry : report.quantization) lines.push_back(line(&entry));
  if (lines.empty()) lines.push_back(line(nullptr));
  return lines;
}

std::vector<LayerRow> LayersOf(const AnalyzedReport& analyzed) {
  const std::vector<QuantizationReport>& quantization = analyzed.report.quantization;
  const std::vector<size_t> order = QuantizerOrder(quantization);
  const QuantizationReport* const watched_entry = WatchedQuantizer(analyzed);
  std::map<std::string, LayerRow> rows;
  size_t watched = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const QuantizationReport& entry = quantization[order[i]];
    if (&entry == watched_entry) watched = i;
    for (const LayerQuantization& layer : entry.layers) {
      LayerRow& row = rows[layer.name];
      row.name = layer.name;
      row.stacked = layer.stacked;
      row.tokens = std::max(row.tokens, layer.tokens);
      if (std::string lacking = Lacking(layer); !lacking.empty()) row.lacking = std::move(lacking);
      row.output_error_ratios.resize(order.size());
      row.output_error_ratios[i] = layer.output_error_ratio;
      if (&entry == watched_entry && entry.prediction_detail.empty()) {
        row.contribution = Sum(layer.gradient_term_nats, layer.curvature_term_nats);
      }
      if (&entry == watched_entry) row.entropy_bits = layer.entropy_bits;
    }
  }
  if (analyzed.report.curvature) {
    for (const LayerCurvature& layer : analyzed.report.curvature->layers) {
      if (const auto row = rows.find(layer.name); row != rows.end())
        row->second.trace = layer.trace;
    }
  }
  std::vector<LayerRow> layers;
  for (auto& [name, row] : rows) layers.push_back(std::move(row));
  const bool by_contribution = std::any_of(layers.begin(), layers.end(), [](const LayerRow& row) {
    return row.contribution.has_value();
  });
  std::stable_sort(layers.begin(), layers.end(), [&](const LayerRow& a, const LayerRow& b) {
    return Weight(a, watched, by_contribution) > Weight(b, watched, by_contribution);
  });
  return layers;
}

std::string LayerTable(const AnalyzedReport& analyzed, size_t most) {
  const std::vector<QuantizationReport>& quantization = analyzed.report.quantization;
  const std::vector<std::string> names = QuantizerNames(quantization);
  const std::vector<LayerRow> layers = LayersOf(analyzed);
  const QuantizationReport* const watched = WatchedQuantizer(analyzed);
  const bool by_loss = !layers.empty() && layers.front().contribution.has_value();
  const bool uneven = std::any_of(layers.begin(), layers.end(), [&](const LayerRow& row) {
    return row.tokens != layers.front().tokens || !row.lacking.empty();
  });
  const bool sized = std::any_of(layers.begin(), layers.end(),
                                 [](const LayerRow& row) { return row.entropy_bits.has_value(); });
  const std::string title = StrCat(
      "step ", analyzed.report.step, ", ", std::min(most, layers.size()), " of ", layers.size(),
      " layers, sorted by ",
      by_loss ? "their contribution to the loss of " : "the error of their output under ",
      watched == nullptr ? "" : names[static_cast<size_t>(watched - quantization.data())],
      "\nloss: contribution of the layer, to second order; trace: of the layer's block of the "
      "Hessian;\n",
      uneven ? "tokens: that the layer met in calibration, in a stack all layers together;\n" : "",
      sized ? "bits: entropy of the layer's codes, in bits a weight, under the same quantizer;\n"
            : "",
      "each quantizer: relative squared error of the layer's output\n\n");
  std::vector<std::string> header = {"layer", "loss, nats", "trace"};
  if (uneven) header.push_back("tokens");
  if (sized) header.push_back("bits");
  for (const size_t i : QuantizerOrder(quantization)) header.push_back(names[i]);
  std::vector<std::vector<std::string>> rows = {std::move(header)};
  for (const LayerRow& layer : layers) {
    if (rows.size() > most) break;
    std::vector<std::string>& row = rows.emplace_back();
    const std::string number = layer.stacked ? StrCat(" (", *layer.stacked, ")") : "";
    row = {StrCat(Printable(layer.name), number), ScientificCell(layer.contribution),
           ScientificCell(layer.trace)};
    const std::string lacking = layer.lacking.empty() ? "" : StrCat(" (", layer.lacking, ")");
    if (uneven) row.push_back(StrCat(layer.tokens, lacking));
    if (sized) {
      row.push_back(layer.entropy_bits ? StrFormat("%.2f", *layer.entropy_bits) : "-");
    }
    for (const auto& ratio : layer.output_error_ratios) row.push_back(PercentCell(ratio));
  }
  const bool unsure = watched != nullptr && !watched->prediction_detail.empty();
  return StrCat(
      title, TextTable(rows),
      unsure ? StrCat("no loss by layer: ", Printable(watched->prediction_detail), "\n") : "");
}

std::vector<std::string> LayerCsv(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  std::vector<std::string> lines = {
      "step,layer,trace,method,bits,group_size,output_error_ratio,rtn_output_error_ratio,"
      "gradient_term_nats,curvature_term_nats,format,dead_zone_ratio,grid_noise_ratio,"
      "scale_bias_ratio,accumulated_error_ratio,stacked,stacked_ok,output_error_p10_ratio,"
      "output_error_median_ratio,output_error_p90_ratio,tokens,status,entropy_bits"};
  std::map<std::string, std::optional<double>> traces;
  for (const LayerRow& layer : LayersOf(analyzed)) traces[layer.name] = layer.trace;
  for (const QuantizationReport& entry : report.quantization) {
    for (const LayerQuantization& layer : entry.layers) {
      CsvRow row;
      row.Add(report.step).Add(layer.name).Add(traces[layer.name]).Add(ToString(entry.method));
      row.Add(int64_t{entry.bits}).Add(int64_t{entry.group_size}).Add(layer.output_error_ratio);
      row.Add(layer.rtn_output_error_ratio).Add(layer.gradient_term_nats);
      row.Add(layer.curvature_term_nats).Add(KeyOf(entry).format).Add(layer.dead_zone_ratio);
      row.Add(layer.grid_noise_ratio).Add(layer.scale_bias_ratio);
      row.Add(layer.accumulated_error_ratio).Add(layer.stacked).Add(layer.stacked_ok);
      row.Add(layer.output_error_p10_ratio).Add(layer.output_error_median_ratio);
      row.Add(layer.output_error_p90_ratio).Add(layer.tokens).Add(ToString(layer.status));
      row.Add(layer.entropy_bits);
      lines.push_back(row.text());
    }
  }
  return lines;
}

}  // namespace ptqwatch::internal
