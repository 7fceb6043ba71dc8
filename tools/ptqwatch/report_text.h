#ifndef PTQWATCH_TOOLS_PTQWATCH_REPORT_TEXT_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPORT_TEXT_H_

#include <string>

#include "ptqwatch/report.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// Formats one report as lines `name value` with its verdict, and a table of its quantizers. Times
/// are shown as ages at `now_unix_seconds`.
std::string ReportBlock(const AnalyzedReport& report, double now_unix_seconds, TextStyle style);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPORT_TEXT_H_
