#ifndef PTQWATCH_RUN_PAGE_H_
#define PTQWATCH_RUN_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/config.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch {

/// Writes the live page of a run as one self-contained HTML file. Shows the reports and events that
/// were added. Not thread-safe. Memory: a few kilobytes per report.
class PTQWATCH_EXPORT RunPage {
 public:
  /// Adds a report. All reports must belong to one run and come in the order of the journal. Layers
  /// are shown only for the newest report.
  void Add(const AnalyzedReport& report);
  void Add(const Event& event);

  int64_t reports() const { return count_; }
  /// Returns the HTML. `name` is the page's title; `time_unix_seconds` is the time of `status`.
  std::string Render(std::string_view name, const RunInfo& run, const MonitorStatus& status,
                     double time_unix_seconds) const;

 private:
  int64_t count_ = 0;
  std::string series_;
  std::string newest_;
  std::vector<std::string> events_;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_RUN_PAGE_H_
