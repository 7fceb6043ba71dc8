#include "journal/report_line.h"

#include <chrono>

#include "base/log.h"
#include "base/strings.h"
#include "report/layer_columns.h"

namespace ptqwatch::internal {

void LeaveLayersOut(Report& report) {
  for (QuantizationReport& entry : report.quantization) entry.layers = {};
  for (AveragingReport& average : report.averaging) {
    for (QuantizationReport& entry : average.quantization) entry.layers = {};
  }
  if (report.curvature) report.curvature->layers = {};
  report.skipped_layers = {};
  report.parameter_digests = {};
}

std::string ReportLine(const AnalyzedReport& report) {
  std::string line = ToColumnJson(report);
  if (line.size() <= kMaxLineBytes) return line;
  static RateLimitedLog too_long{std::chrono::hours(1)};
  too_long(Severity::kWarning,
           StrCat("the journal has the report of step ", report.report.step,
                  " without its layers: with them, its line would have ", line.size(),
                  " bytes, and at most ", kMaxLineBytes, " can be read"));
  AnalyzedReport shorter = report;
  LeaveLayersOut(shorter.report);
  return ToColumnJson(shorter);
}

}  // namespace ptqwatch::internal
