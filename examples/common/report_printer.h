#ifndef PTQWATCH_COMMON_REPORT_PRINTER_H_
#define PTQWATCH_COMMON_REPORT_PRINTER_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "ptqwatch/exporter.h"

namespace ptqwatch::examples {

/// One line: step, learning rate and phase, probe loss, each quantizer's error in percent with its
/// standard error, curvature, verdict.
std::string ReportLine(const AnalyzedReport& report);

/// For an alarm, the lines "alert  ..." with the summary and "advice ..." with each advice; empty
/// for other verdicts.
std::string AlarmLines(const AnalyzedReport& report);

/// Prints each report and event as a line on standard output, and AlarmLines when an alarm begins.
class ReportPrinter : public Exporter {
 public:
  std::string_view name() const override { return "printer"; }
  absl::Status Start(StatusSource*, Control*) override { return absl::OkStatus(); }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override;
  void OnEvent(const Event& event) override;
  void Stop(std::chrono::milliseconds) override {}

 private:
  VerdictState state_ = VerdictState::kUnknown;  // of the previous report
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_REPORT_PRINTER_H_
