#ifndef PTQWATCH_COMMON_REPORT_PRINTER_H_
#define PTQWATCH_COMMON_REPORT_PRINTER_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "ptqwatch/exporter.h"

namespace ptqwatch::examples {

/// One line: step, learning rate and phase, probe loss, error of each quantizer in percent with its
/// standard error, curvature, verdict.
std::string ReportLine(const AnalyzedReport& report);

/// Lines "alert  ..." with the summary and "advice ..." with each advice of an alarm; empty where
/// the verdict is none.
std::string AlarmLines(const AnalyzedReport& report);

/// An exporter that prints each report and event as a line on standard output, and AlarmLines where
/// an alarm begins.
class ReportPrinter : public Exporter {
 public:
  std::string_view name() const override { return "printer"; }
  absl::Status Start(StatusSource*, Control*) override { return absl::OkStatus(); }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override;
  void OnEvent(const Event& event) override;
  void Stop(std::chrono::milliseconds) override {}

 private:
  VerdictState state_ = VerdictState::kUnknown;  // of the report before
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_REPORT_PRINTER_H_
