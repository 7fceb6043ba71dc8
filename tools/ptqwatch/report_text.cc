#include "report_text.h"

#include <algorithm>
#include <numbers>
#include <optional>
#include <vector>

#include "base/strings.h"
#include "printable.h"
#include "text_table.h"
#include "verdict_text.h"

namespace ptqwatch::internal {
namespace {

std::string Number(bool measured, const std::optional<double>& value,
                   const std::optional<double>& error, bool utf8) {
  return measured && value.has_value() ? EstimateText(*value, error, utf8) : "-";
}

// Converts a loss in nats a token; empty if the bytes of a token are unknown.
std::string BitsPerByte(const Report& report, const std::optional<double>& nats) {
  const double bytes = report.bytes_per_token.value_or(0);
  return nats && bytes > 0 ? StrFormat("%.4f", *nats / std::numbers::ln2 / bytes) : "";
}

// The full-precision loss with the increase under a quantizer. Its own loss is that of the tokens
// it was compared on, which may be fewer than those of another.
std::optional<double> LossUnder(const Report& report, const QuantizationReport& entry) {
  if (report.probe_status != ProbeStatus::kOk || entry.status != ProbeStatus::kOk ||
      !report.probe_loss_nats || !entry.delta_nats) {
    return std::nullopt;
  }
  return *report.probe_loss_nats + *entry.delta_nats;
}

std::string LossText(const Report& report, bool utf8) {
  if (report.probe_status == ProbeStatus::kOk && report.probe_loss_nats.has_value()) {
    const std::string bits = BitsPerByte(report, report.probe_loss_nats);
    return StrCat(EstimateText(*report.probe_loss_nats, report.probe_loss_stderr_nats, utf8),
                  " nats on ",
                  report.probe_examples > 0 ? StrCat(report.probe_examples, " examples")
                                            : StrCat(report.probe_tokens, " tokens"),
                  bits.empty() ? "" : StrCat(", ", bits, " bits a byte"));
  }
  return StrCat(ToString(report.probe_status), report.probe_status_detail.empty() ? "" : ": ",
                Printable(report.probe_status_detail));
}

std::string CurvatureText(const CurvatureReport& curvature, bool utf8) {
  if (curvature.status != ProbeStatus::kOk) {
    return StrCat(ToString(curvature.status), curvature.status_detail.empty() ? "" : ": ",
                  Printable(curvature.status_detail));
  }
  std::string text = StrCat("top eigenvalue ", TopEigenvalueCell(curvature));
  if (const auto residual = curvature.top_eigenvalue_residual_ratio) {
    text += " (";
    if (const auto upper = curvature.top_eigenvalue_upper) {
      text += StrCat("at most ", NumberText(*upper, 3), ", ");
    }
    text += StrCat("residual ", NumberText(*residual, 2), ")");
  }
  text += StrCat(", trace ", TraceCell(curvature, utf8));
  if (!curvature.trace && !curvature.trace_detail.empty()) {
    text += StrCat(" (", Printable(curvature.trace_detail), ")");
  }
  if (curvature.edge_of_stability_ratio) {
    text += StrCat(", edge of stability ", EdgeCell(curvature), " (", ToString(curvature.optimizer),
                   ")");
  } else if (!curvature.edge_of_stability_detail.empty()) {
    text += StrCat(", no edge of stability (", Printable(curvature.edge_of_stability_detail), ")");
  }
  if (curvature.scope) text += StrCat(", of ", ToString(curvature.scope));
  if (!curvature.mode_detail.empty()) {
    text += StrCat(", by finite differences (", Printable(curvature.mode_detail), ")");
  }
  return text;
}

// Warns about unreliable predictions, one line per quantizer.
std::string PredictionNotes(const Report& report, const std::vector<std::string>& names) {
  std::string text;
  for (const size_t i : QuantizerOrder(report.quantization)) {
    const std::string& detail = report.quantization[i].prediction_detail;
    if (!detail.empty())
      text += StrCat(names[i], ": ", Printable(detail), "; the prediction is not used\n");
  }
  return text;
}

// Tells what quantization does to the choices of experts, one line per quantizer of a mixture.
std::string RoutingNotes(const Report& report, const std::vector<std::string>& names) {
  std::string text;
  for (const size_t i : QuantizerOrder(report.quantization)) {
    const QuantizationReport& entry = report.quantization[i];
    if (entry.status != ProbeStatus::kOk || !entry.routing_change_ratio) continue;
    text += StrFormat("%s: %.3g%% of the routers' choices change", names[i],
                      100 * *entry.routing_change_ratio);
    if (entry.fallback_tokens_ratio.value_or(0) > 0) {
      text += StrFormat("; experts with %.3g%% of the rows had too few to be calibrated",
                        100 * *entry.fallback_tokens_ratio);
    }
    text += "\n";
  }
  return text;
}

// A header, and a row for each quantizer. Sizes and losses in bits a byte have columns if there are
// any.
std::vector<std::vector<std::string>> QuantizerRows(const Report& report,
                                                    const std::vector<std::string>& names,
                                                    bool utf8) {
  const bool sizes =
      std::any_of(report.quantization.begin(), report.quantization.end(),
                  [](const QuantizationReport& entry) { return entry.artifact_bytes.has_value(); });
  std::vector<std::vector<std::string>> rows = {
      {"quantizer", "error", "loss change (nats)", "predicted", "on its batch", "covered"}};
  if (sizes) rows[0].insert(rows[0].end(), {"bits/weight", "MB"});
  if (report.bytes_per_token) rows[0].push_back("bits/byte");
  for (const size_t i : QuantizerOrder(report.quantization)) {
    const QuantizationReport& entry = report.quantization[i];
    const bool measured = entry.status == ProbeStatus::kOk;
    rows.push_back({names[i], ErrorRatioCell(entry, utf8),
                    Number(measured, entry.delta_nats, entry.delta_stderr_nats, utf8),
                    Number(measured, entry.predicted_delta_nats, std::nullopt, utf8),
                    Number(measured, entry.curvature_batch_delta_nats,
                           entry.curvature_batch_delta_stderr_nats, utf8),
                    StrFormat("%.1f%%", 100 * entry.coverage_ratio)});
    if (sizes) {
      const bool sized = measured && entry.entropy_bits && entry.artifact_bytes;
      rows.back().push_back(sized ? StrFormat("%.3f", *entry.entropy_bits) : "-");
      rows.back().push_back(
          sized ? StrFormat("%.3f", 1e-6 * static_cast<double>(*entry.artifact_bytes)) : "-");
    }
    if (report.bytes_per_token) {
      const std::string bits = BitsPerByte(report, LossUnder(report, entry));
      rows.back().push_back(bits.empty() ? "-" : bits);
    }
  }
  return rows;
}

}  // namespace

std::string ReportBlock(const AnalyzedReport& analyzed, double now_unix_seconds, TextStyle style) {
  const Report& report = analyzed.report;
  std::string text = FieldLine(
      "report", StrCat(report.sequence, " of step ", report.step, ", ",
                       AgoText(now_unix_seconds - report.snapshot_time_unix_seconds), ", lr ",
                       RateText(report.learning_rate), ", ", ToString(report.lr_phase)));
  text += FieldLine("loss", LossText(report, style.utf8));
  if (report.curvature.has_value()) {
    text += FieldLine("curvature", CurvatureText(*report.curvature, style.utf8));
  }
  text += VerdictBlock(analyzed.verdict, style);
  text += AveragingBlock(report, style);
  text += MixedPrecisionBlock(report, style);
  text += PooledBlock(report, style);
  text += NoiseBlock(report, style);
  text += PredictionBlock(report);
  if (report.quantization.empty()) return text;

  const std::vector<std::string> names = QuantizerNames(report.quantization);
  return StrCat(text, "\n", TextTable(QuantizerRows(report, names, style.utf8)),
                PredictionNotes(report, names), RoutingNotes(report, names));
}

}  // namespace ptqwatch::internal
