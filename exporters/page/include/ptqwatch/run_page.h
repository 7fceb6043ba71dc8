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

/// The live page of a run as one HTML file that asks for nothing else: to keep, or to send around.
/// It shows what was added. Not thread-safe. Memory: some kilobytes a report.
class PTQWATCH_EXPORT RunPage {
 public:
  /// Of one run, in the order of the journal. All layers are shown of the newest report alone.
  void Add(const AnalyzedReport& report);
  void Add(const Event& event);

  int64_t reports() const { return count_; }
  /// `name` is the page's title; `time_unix_seconds` is when all this was so.
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
