#include "comparison_text.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "csv_row.h"
#include "printable.h"
#include "report_table.h"
#include "text_table.h"

namespace ptqwatch::tools {
namespace {

using internal::CsvRow;
using internal::PairedDifference;
using internal::StrCat;
using nlohmann::ordered_json;

constexpr int kComparedDigits = 5;

std::string ComparedLoss(const std::optional<double>& loss) {
  return loss ? internal::NumberText(*loss, kComparedDigits) : "-";
}

// "+0.0123±0.0045", times `scale`.
std::string DifferenceCell(const PairedDifference& difference, double scale,
                           std::string_view unit) {
  if (!difference.value) return "-";
  std::optional<double> error = difference.stderr_value;
  if (error) *error *= scale;
  const double value = *difference.value * scale;
  return StrCat(value > 0 ? "+" : "", internal::EstimateText(value, error, /*utf8=*/true), unit);
}

void AddDifference(const PairedDifference& difference, CsvRow& row) {
  row.Add(difference.value).Add(difference.stderr_value);
}

void AddDifference(const PairedDifference& difference, const std::string& name,
                   const std::string& unit, ordered_json& json) {
  if (difference.value) json[name + "_difference" + unit] = *difference.value;
  if (difference.stderr_value) json[name + "_difference_stderr" + unit] = *difference.stderr_value;
}

std::string DetailLines(const ModelComparison& comparison, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& [letter, model] : {std::pair("A", &comparison.a), {"B", &comparison.b}}) {
    for (size_t i = 0; i < names.size(); ++i) {
      const QuantizationReport& entry = model->report.quantization[i];
      if (entry.status == ProbeStatus::kOk) continue;
      text += StrCat(letter, ", ", names[i], ": ", internal::Printable(entry.status_detail), "\n");
    }
  }
  return text;
}

ordered_json ModelJson(const ComparedModel& model) {
  ordered_json report =
      ordered_json::parse(ToJson(AnalyzedReport{.report = model.report, .verdict = {}}));
  report.erase("verdict");
  return {{"path", internal::ValidUtf8(model.path)},
          {"architecture", model.architecture},
          {"report", std::move(report)}};
}

}  // namespace

std::string ComparisonTable(const ModelComparison& comparison) {
  const Report& a = comparison.a.report;
  const Report& b = comparison.b.report;
  const internal::LossesDifference& difference = comparison.difference;
  const std::vector<std::string> names = internal::QuantizerNames(a.quantization);
  std::vector<std::vector<std::string>> rows{
      {"quantizer", "loss A", "loss B", "B - A", "E A", "E B", "B - A"},
      {"none", ComparedLoss(a.probe_loss_nats), ComparedLoss(b.probe_loss_nats),
       DifferenceCell(difference.loss_nats, 1, ""), "-", "-", "-"}};
  for (const size_t i : internal::QuantizerOrder(a.quantization)) {
    const QuantizationReport& of_a = a.quantization[i];
    const QuantizationReport& of_b = b.quantization[i];
    rows.push_back({names[i], ComparedLoss(of_a.loss_nats), ComparedLoss(of_b.loss_nats),
                    DifferenceCell(difference.quantizers[i].loss_nats, 1, ""),
                    internal::ErrorRatioCell(of_a, /*utf8=*/true),
                    internal::ErrorRatioCell(of_b, /*utf8=*/true),
                    DifferenceCell(difference.quantizers[i].error_ratio, 100, "%")});
  }
  std::string text;
  for (const auto& [letter, model] : {std::pair("A", &comparison.a), {"B", &comparison.b}}) {
    text +=
        StrCat(letter, ": ", internal::Printable(model->path), " (", model->architecture, ")\n");
  }
  return StrCat(text, difference.tokens, " tokens in ", difference.sequences, " sequences\n\n",
                internal::TextTable(rows), DetailLines(comparison, names));
}

std::string ComparisonCsv(const ModelComparison& comparison) {
  const Report& a = comparison.a.report;
  const Report& b = comparison.b.report;
  std::string text =
      "path_a,path_b,probe_loss_nats_a,probe_loss_nats_b,probe_loss_difference_nats,"
      "probe_loss_difference_stderr_nats,method,bits,group_size,format,status_a,status_b,"
      "loss_nats_a,loss_nats_b,loss_difference_nats,loss_difference_stderr_nats,delta_nats_a,"
      "delta_nats_b,delta_difference_nats,delta_difference_stderr_nats,error_ratio_a,"
      "error_ratio_stderr_a,error_ratio_b,error_ratio_stderr_b,error_ratio_difference,"
      "error_ratio_difference_stderr\n";
  for (size_t i = 0; i < a.quantization.size(); ++i) {
    const QuantizationReport& of_a = a.quantization[i];
    const QuantizationReport& of_b = b.quantization[i];
    const internal::QuantizerDifference& quantizer = comparison.difference.quantizers[i];
    CsvRow row;
    row.Add(comparison.a.path).Add(comparison.b.path).Add(a.probe_loss_nats);
    row.Add(b.probe_loss_nats);
    AddDifference(comparison.difference.loss_nats, row);
    row.Add(ToString(of_a.method)).Add(int64_t{of_a.bits}).Add(int64_t{of_a.group_size});
    row.Add(KeyOf(of_a).format).Add(ToString(of_a.status)).Add(ToString(of_b.status));
    row.Add(of_a.loss_nats).Add(of_b.loss_nats);
    AddDifference(quantizer.loss_nats, row);
    row.Add(of_a.delta_nats).Add(of_b.delta_nats);
    AddDifference(quantizer.delta_nats, row);
    row.Add(of_a.error_ratio).Add(of_a.error_ratio_stderr);
    row.Add(of_b.error_ratio).Add(of_b.error_ratio_stderr);
    AddDifference(quantizer.error_ratio, row);
    text += StrCat(internal::Printable(row.text()), "\n");
  }
  return text;
}

std::string ComparisonJson(const ModelComparison& comparison) {
  const internal::LossesDifference& difference = comparison.difference;
  ordered_json json{{"models", {ModelJson(comparison.a), ModelJson(comparison.b)}},
                    {"probe_sequences", difference.sequences},
                    {"probe_tokens", difference.tokens}};
  AddDifference(difference.loss_nats, "probe_loss", "_nats", json);
  json["quantization"] = ordered_json::array();
  for (size_t i = 0; i < difference.quantizers.size(); ++i) {
    const QuantizationReport& entry = comparison.a.report.quantization[i];
    ordered_json of{{"method", ToString(entry.method)},
                    {"bits", entry.bits},
                    {"group_size", entry.group_size},
                    {"format", KeyOf(entry).format}};
    AddDifference(difference.quantizers[i].loss_nats, "loss", "_nats", of);
    AddDifference(difference.quantizers[i].delta_nats, "delta", "_nats", of);
    AddDifference(difference.quantizers[i].error_ratio, "error_ratio", "", of);
    json["quantization"].push_back(std::move(of));
  }
  return StrCat(json.dump(), "\n");
}

}  // namespace ptqwatch::tools
