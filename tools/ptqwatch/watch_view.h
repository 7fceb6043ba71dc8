#ifndef PTQWATCH_TOOLS_PTQWATCH_WATCH_VIEW_H_
#define PTQWATCH_TOOLS_PTQWATCH_WATCH_VIEW_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flags.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"
#include "report_table.h"
#include "status_text.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// The output of `ptqwatch watch`: a table row or a line of JSON for each report, a line for each
/// event, and a status line below on a terminal. Notices go to standard error and, with JSON, so do
/// gaps. Not thread-safe.
class WatchView final : public WatchListener {
 public:
  /// All must outlive the view.
  WatchView(const WatchFlags* flags, Clock* clock, Terminal* terminal);

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnEvent(const Event& event) override;
  void OnStatus(const RunStatus& status) override;
  void OnNotice(std::string_view text) override;
  bool OnTick(bool connected) override;

 private:
  void ShowGap(int64_t missed);
  void ShowRow(const AnalyzedReport& report);
  std::string StatusNow(bool connected) const;

  const WatchFlags* flags_;
  Clock* clock_;
  Terminal* terminal_;
  ReportTable table_;
  size_t rows_since_header_ = 0;
  int64_t reports_ = 0;
  StepRate rate_;
  std::optional<RunStatus> status_;
  std::chrono::nanoseconds status_time_{0};
  std::optional<double> newest_unix_seconds_;  ///< time of the newest report's snapshot
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_WATCH_VIEW_H_
