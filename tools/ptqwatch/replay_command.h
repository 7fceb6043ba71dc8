#ifndef PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ptqwatch/report.h"
#include "report_table.h"

namespace ptqwatch::internal {

/// The rows of `ptqwatch replay`: one for each report, with the summary if the verdict changes, and
/// a last row that counts the alarms.
class ReplayTable {
 public:
  explicit ReplayTable(TextStyle style) : style_(style) {}

  std::string Header() const;
  std::string Row(const AnalyzedReport& report);
  /// "21 reports, 1 alarm, first alarm at step 14400".
  std::string Totals() const;

 private:
  const TextStyle style_;
  std::optional<VerdictState> state_;  // of the previous row
  int64_t reports_ = 0;
  int64_t alarms_ = 0;  // alarms begun
  int64_t first_alarm_step_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_
