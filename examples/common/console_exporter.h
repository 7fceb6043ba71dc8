#ifndef PTQWATCH_COMMON_CONSOLE_EXPORTER_H_
#define PTQWATCH_COMMON_CONSOLE_EXPORTER_H_

#include <memory>
#include <string>
#include <string_view>

#include "ptqwatch/exporter.h"
#include "run_summary.h"

namespace ptqwatch::examples {

/// One line: step, learning rate, phase, probe loss, error of each quantizer with its standard
/// error, verdict.
std::string SnapshotLine(const AnalyzedReport& report);

/// Prints SnapshotLine for each report and keeps the report for the summary.
class ConsoleExporter : public Exporter {
 public:
  /// `summary` must outlive the exporter.
  explicit ConsoleExporter(RunSummary* summary) : summary_(summary) {}

  std::string_view name() const override { return "console"; }
  absl::Status Start(StatusSource* source, Control* control) override;
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override;
  void OnEvent(const Event& event) override;
  void Stop(std::chrono::milliseconds) override {}

 private:
  RunSummary* summary_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_CONSOLE_EXPORTER_H_
