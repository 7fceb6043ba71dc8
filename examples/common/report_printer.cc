#include "report_printer.h"

#include <cstdio>
#include <utility>

namespace ptqwatch::examples {
namespace {

/// Formats like printf and returns a string.
template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

std::string ErrorCell(const QuantizationReport& entry) {
  const std::string name = ShortName(KeyOf(entry));
  if (!entry.error_ratio) return name + " " + std::string(ToString(entry.status));
  std::string text = name + Format(" %.2f", 100 * *entry.error_ratio);
  if (entry.error_ratio_stderr) text += Format("+-%.2f", 100 * *entry.error_ratio_stderr);
  return text;
}

}  // namespace

std::string ReportLine(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  std::string line = "snapshot step " + std::to_string(report.step) +
                     Format("  lr %.2e ", report.learning_rate.value_or(0));
  line.append(ToString(report.lr_phase)).append("  loss ");
  if (report.probe_loss_nats) {
    line += Format("%.4f", *report.probe_loss_nats);
  } else {
    line.append(ToString(report.probe_status));
  }
  line += "  E%";
  for (const QuantizationReport& entry : report.quantization)
    line.append(" ").append(ErrorCell(entry));
  if (const auto& curvature = report.curvature) {
    if (curvature->top_eigenvalue) line += Format("  top eig %.2f", *curvature->top_eigenvalue);
    if (curvature->trace) line += Format(" trace %.0f", *curvature->trace);
    if (curvature->edge_of_stability_ratio) {
      line += Format(" edge %.2f", *curvature->edge_of_stability_ratio);
    }
  }
  return line.append("  ").append(ToString(analyzed.verdict.state));
}

std::string AlarmLines(const AnalyzedReport& analyzed) {
  const Verdict& verdict = analyzed.verdict;
  if (!IsAlarm(verdict.state)) return "";
  std::string lines = "alert  " + verdict.summary + "\n";
  for (const Advice& advice : verdict.advice) lines += "advice " + advice.text + "\n";
  return lines;
}

void ReportPrinter::OnReport(std::shared_ptr<const AnalyzedReport> report) {
  std::printf("%s\n", ReportLine(*report).c_str());
  const VerdictState before = std::exchange(state_, report->verdict.state);
  if (report->verdict.state != before) std::printf("%s", AlarmLines(*report).c_str());
}

void ReportPrinter::OnEvent(const Event& event) {
  // The report has already announced the alarm.
  if (event.kind == Event::Kind::kAlert && event.severity == Severity::kWarning) return;
  std::printf("event step %lld  %s\n", static_cast<long long>(event.step), event.message.c_str());
}

}  // namespace ptqwatch::examples
