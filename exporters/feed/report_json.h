#ifndef PTQWATCH_FEED_REPORT_JSON_H_
#define PTQWATCH_FEED_REPORT_JSON_H_

#include <string>

#include "feed/run_feed.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The values of a report that the charts of the live page draw, as JSON with the journal's keys.
std::string SeriesJson(const AnalyzedReport& report);

/// Sets the functions that make the three JSON forms of a report.
void AddJsonForms(ReportForms& forms);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_REPORT_JSON_H_
