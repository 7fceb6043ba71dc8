#include "status_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "printable.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kObservations = 10;
constexpr size_t kNameWidth = 11;

std::string Field(std::string_view name, std::string_view value) {
  return StrCat(PadRight(name, kNameWidth), value, "\n");
}

int64_t Skipped(const v1::GetStatusResponse& status) {
  int64_t skipped = 0;
  for (const auto& [result, count] : status.snapshots()) {
    if (absl::StartsWith(result, "skipped_")) skipped += count;
  }
  return skipped;
}

std::string_view PhaseText(v1::LrPhase phase) { return ToString(static_cast<LrPhase>(phase)); }

std::string Ago(double now, double then) { return StrCat(AgeText(now - then), " ago"); }

// `rows` with columns as wide as their widest cell; the first is flush left.
std::string Aligned(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < row.size(); ++i) {
      size_t width = 0;
      for (const auto& other : rows) width = std::max(width, DisplayWidth(other[i]));
      cells.push_back(i == 0 ? PadRight(row[i], width) : PadLeft(row[i], width));
    }
    text += StrCat(absl::StrJoin(cells, "  "), "\n");
  }
  return text;
}

std::string Number(bool measured, const std::optional<double>& value,
                   const std::optional<double>& error, bool utf8) {
  return measured && value.has_value() ? EstimateText(*value, error, utf8) : "-";
}

std::string LossText(const Report& report, bool utf8) {
  if (report.probe_status == ProbeStatus::kOk && report.probe_loss_nats.has_value()) {
    return StrCat(EstimateText(*report.probe_loss_nats, report.probe_loss_stderr_nats, utf8),
                  " nats on ", report.probe_tokens, " tokens");
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
    text += StrCat(" (residual ", NumberText(*residual, 2), ")");
  }
  text += StrCat(", trace ", TraceCell(curvature, utf8));
  if (curvature.edge_of_stability_ratio) {
    text += StrCat(", edge of stability ", EdgeCell(curvature), " (", ToString(curvature.optimizer),
                   ")");
  } else if (!curvature.edge_of_stability_detail.empty()) {
    text += StrCat(", no edge of stability (", Printable(curvature.edge_of_stability_detail), ")");
  }
  if (curvature.scope) text += StrCat(", of ", ToString(curvature.scope));
  return text;
}

std::string VerdictText(const Verdict& verdict, bool color) {
  std::string text = VerdictCell(verdict.state, color);
  if (verdict.onset_step.has_value()) text += StrCat(" since step ", *verdict.onset_step);
  if (verdict.severity_nats.has_value() && std::isfinite(*verdict.severity_nats)) {
    absl::StrAppendFormat(&text, ", %+.3g nats", *verdict.severity_nats);
  }
  if (!verdict.summary.empty()) text += StrCat(": ", Printable(verdict.summary));
  return text;
}

}  // namespace

void StepRate::Add(std::chrono::nanoseconds now, int64_t steps_total) {
  if (!observations_.empty() && steps_total < observations_.back().steps) observations_.clear();
  observations_.push_back({now, steps_total});
  if (observations_.size() > kObservations) observations_.pop_front();
}

std::optional<double> StepRate::PerSecond() const {
  if (observations_.size() < 2) return std::nullopt;
  const Observation &first = observations_.front(), &last = observations_.back();
  const std::chrono::duration<double> elapsed = last.time - first.time;
  if (elapsed.count() <= 0) return std::nullopt;
  return static_cast<double>(last.steps - first.steps) / elapsed.count();
}

std::string_view HealthText(v1::Health health) {
  switch (health) {
    case v1::HEALTH_STARTING:
      return ToString(Health::kStarting);
    case v1::HEALTH_OK:
      return ToString(Health::kOk);
    case v1::HEALTH_DEGRADED:
      return ToString(Health::kDegraded);
    case v1::HEALTH_STOPPED:
      return ToString(Health::kStopped);
    default:
      return "unknown";
  }
}

std::string SliceText(const v1::SliceStatus& slice) {
  const std::string name = ShortName(Printable(slice.method()), slice.bits());
  switch (slice.state()) {
    case v1::SLICE_STATE_WAITING_FOR_FIRST:
      return StrCat(name, ", waits for the next snapshot");
    case v1::SLICE_STATE_WAITING_FOR_SECOND:
      return StrCat(name, ", has one snapshot, waits for the next");
    case v1::SLICE_STATE_MEASURING:
      return StrCat(name, ", ", slice.points_done(), " of ", slice.points_all(), " points");
    case v1::SLICE_STATE_DONE:
      return StrCat(name, ", written to ", Printable(slice.path()));
    case v1::SLICE_STATE_FAILED:
      return StrCat(name, ", failed: ", Printable(slice.error()));
    default:
      return StrCat(name, ", unknown");
  }
}

std::string StatusLine(const v1::GetStatusResponse& status, std::optional<double> steps_per_second,
                       std::optional<double> report_age_seconds) {
  std::vector<std::string> parts;
  parts.push_back(status.has_step() ? StrCat("step ", status.step()) : "no step yet");
  if (steps_per_second.has_value()) {
    parts.push_back(StrCat(NumberText(*steps_per_second, 3), " steps/s"));
  }
  if (status.last_sequence() == 0) {
    parts.push_back("no report yet");
  } else if (report_age_seconds.has_value()) {
    parts.push_back(StrCat("newest report ", AgeText(*report_age_seconds), " old"));
  }
  parts.push_back(std::string(HealthText(status.health())));
  if (status.slice().state() == v1::SLICE_STATE_MEASURING) {
    parts.push_back(StrCat("slice ", SliceText(status.slice())));
  } else if (status.busy()) {
    parts.push_back("busy");
  }
  if (const int64_t skipped = Skipped(status); skipped > 0) {
    parts.push_back(StrCat(skipped, " skipped"));
  }
  return absl::StrJoin(parts, " | ");
}

std::string StatusBlock(const v1::GetStatusResponse& status, double now_unix_seconds) {
  std::string text;
  text +=
      Field("run", StrCat(Printable(status.run_id()), ", attempt ", status.attempt(), ", ptqwatch ",
                          Printable(status.version()), " on ", Printable(status.device())));
  text += Field("health", StrCat(HealthText(status.health()),
                                 status.busy() ? ", a snapshot is being measured" : ""));
  if (status.has_step()) {
    text += Field("step", StrCat(status.step(), ", ",
                                 Ago(now_unix_seconds, status.last_step_unix_seconds())));
    const std::string rate =
        status.has_learning_rate() ? ScientificText(status.learning_rate(), 2) : "-";
    text += Field("lr", StrCat(rate, ", ", PhaseText(status.lr_phase())));
  } else {
    text += Field("step", "none yet");
  }
  if (status.has_training_loss_nats() || status.has_tokens()) {
    std::vector<std::string> parts;
    if (status.has_training_loss_nats()) {
      parts.push_back(StrCat("loss ", NumberText(status.training_loss_nats(), 5), " nats"));
    }
    if (status.has_tokens()) parts.push_back(StrCat(status.tokens(), " tokens"));
    text += Field("training", absl::StrJoin(parts, ", "));
  }
  std::string covered = StrCat(status.parameters(), " parameters");
  if (status.parameters() > 0) {
    absl::StrAppendFormat(&covered, ", %.1f%% in layers that are quantized",
                          100.0 * static_cast<double>(status.covered_parameters()) /
                              static_cast<double>(status.parameters()));
  }
  text += Field("model", covered);
  const std::map<std::string, int64_t> snapshots(status.snapshots().begin(),
                                                 status.snapshots().end());
  std::vector<std::string> counts;
  for (const auto& [result, count] : snapshots) {
    if (count > 0) counts.push_back(StrCat(count, " ", Printable(result)));
  }
  text += Field("snapshots", counts.empty() ? "none yet" : absl::StrJoin(counts, ", "));
  text += Field("reports",
                StrCat(status.reports_total(), ", newest has sequence ", status.last_sequence(),
                       "; ", status.probe_failures_total(), " failed measurements, ",
                       status.dropped_reports(), " dropped by exporters"));
  std::string cost = StrCat(NumberText(status.stall_seconds_total(), 3), " s taken from training");
  if (status.has_overhead_ratio()) {
    cost += StrCat(", overhead ", NumberText(100 * status.overhead_ratio(), 2), "%");
  }
  absl::StrAppendFormat(&cost, ", duty cycle %.0f%%", 100 * status.duty_cycle());
  text += Field("cost", cost);
  if (status.has_slice()) text += Field("slice", SliceText(status.slice()));
  text += Field("watchers", StrCat(status.subscribers()));
  return text;
}

absl::StatusOr<std::string> StatusJson(const v1::GetStatusResponse& status) {
  using google::protobuf::FieldDescriptor;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(status, &text, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  // The JSON of protobuf has 64-bit integers as strings.
  nlohmann::json json = nlohmann::json::parse(text);
  const auto* type = v1::GetStatusResponse::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const auto found = json.find(field->name());
    if (found == json.end()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      *found = std::stoll(found->get<std::string>());
    }
  }
  for (const auto& [result, count] : status.snapshots()) json["snapshots"][result] = count;
  return json.dump(-1, ' ', /*ensure_ascii=*/true);
}

std::string ReportBlock(const AnalyzedReport& analyzed, double now_unix_seconds, TextStyle style) {
  const Report& report = analyzed.report;
  std::string text = Field(
      "report", StrCat(report.sequence, " of step ", report.step, ", ",
                       Ago(now_unix_seconds, report.snapshot_time_unix_seconds), ", lr ",
                       ScientificText(report.learning_rate, 2), ", ", ToString(report.lr_phase)));
  text += Field("loss", LossText(report, style.utf8));
  if (report.curvature.has_value()) {
    text += Field("curvature", CurvatureText(*report.curvature, style.utf8));
  }
  text += Field("verdict", VerdictText(analyzed.verdict, style.color));
  if (report.quantization.empty()) return text;

  const std::vector<std::string> names = QuantizerNames(report.quantization);
  std::vector<std::vector<std::string>> rows = {
      {"quantizer", "error", "loss change (nats)", "predicted", "covered"}};
  for (const size_t i : QuantizerOrder(report.quantization)) {
    const QuantizationReport& entry = report.quantization[i];
    const bool measured = entry.status == ProbeStatus::kOk;
    rows.push_back({names[i], ErrorRatioCell(entry, style.utf8),
                    Number(measured, entry.delta_nats, entry.delta_stderr_nats, style.utf8),
                    Number(measured, entry.predicted_delta_nats, std::nullopt, style.utf8),
                    absl::StrFormat("%.1f%%", 100 * entry.coverage_ratio)});
  }
  return StrCat(text, "\n", Aligned(rows));
}

}  // namespace ptqwatch::internal
