#include "console_exporter.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "console.h"

namespace ptqwatch::examples {
namespace {

std::string Error(const QuantizationReport& entry) {
  const std::string name = ShortName(ToString(entry.method), entry.bits);
  if (!entry.error_ratio.has_value()) return name + " " + std::string(ToString(entry.status));
  std::string text = absl::StrFormat("%s %.2f", name, 100 * *entry.error_ratio);
  if (entry.error_ratio_stderr.has_value()) {
    absl::StrAppendFormat(&text, "+-%.2f", 100 * *entry.error_ratio_stderr);
  }
  return text;
}

}  // namespace

std::string SnapshotLine(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  std::string line = absl::StrFormat("snapshot step %d  lr %.2e %s  loss ", report.step,
                                     report.learning_rate, ToString(report.lr_phase));
  if (report.probe_loss_nats.has_value()) {
    absl::StrAppendFormat(&line, "%.4f", *report.probe_loss_nats);
  } else {
    line += ToString(report.probe_status);
  }
  line += "  E%";
  for (const QuantizationReport& entry : report.quantization) {
    absl::StrAppend(&line, " ", Error(entry));
  }
  if (report.curvature && report.curvature->trace && report.curvature->top_eigenvalue) {
    absl::StrAppendFormat(&line, "  top eig %.2f trace %.0f", *report.curvature->top_eigenvalue,
                          *report.curvature->trace);
  }
  if (report.curvature && report.curvature->edge_of_stability_ratio) {
    absl::StrAppendFormat(&line, " edge %.2f", *report.curvature->edge_of_stability_ratio);
  }
  line.append("  ").append(ToString(analyzed.verdict.state));
  return line;
}

absl::Status ConsoleExporter::Start(StatusSource*, Control*) { return absl::OkStatus(); }

void ConsoleExporter::OnReport(std::shared_ptr<const AnalyzedReport> report) {
  Console::Get().Line(SnapshotLine(*report));
  summary_->Add(std::move(report));
}

void ConsoleExporter::OnEvent(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kSnapshotSkipped:
    case Event::Kind::kPhaseChange:
    case Event::Kind::kResumed:
    case Event::Kind::kSlice:
      Console::Get().Line(absl::StrFormat("event step %d  %s", event.step, event.message));
      break;
    default:
      break;  // failures come through the log sink
  }
}

}  // namespace ptqwatch::examples
