#ifndef PTQWATCH_FEED_REPORT_JSON_H_
#define PTQWATCH_FEED_REPORT_JSON_H_

#include <string>

#include "feed/run_feed.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What the charts of the page draw of a report, with the journal's keys.
std::string SeriesJson(const AnalyzedReport& report);

/// Adds the three forms in JSON.
void AddJsonForms(ReportForms& forms);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_REPORT_JSON_H_
