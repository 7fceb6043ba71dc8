#ifndef PTQWATCH_JOURNAL_REPORT_LINE_H_
#define PTQWATCH_JOURNAL_REPORT_LINE_H_

#include <cstddef>
#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Readers of a journal treat a longer line as corrupt, to bound the memory of a trainer.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

/// Drops the results by layer and by parameter: most of a report's bytes, which no series needs.
void LeaveLayersOut(Report& report);

/// The line of a report in a journal, without a newline (ToColumnJson). Without layers, and with a
/// line of the log, if it would be longer than kMaxLineBytes.
std::string ReportLine(const AnalyzedReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_REPORT_LINE_H_
