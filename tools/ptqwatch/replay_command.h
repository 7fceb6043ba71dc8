#ifndef PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "flags.h"
#include "ptqwatch/report.h"
#include "report_table.h"
#include "terminal.h"

namespace ptqwatch::internal {

/// The rows of `ptqwatch replay`: one for each report, with the summary where the verdict changes,
/// and a last one that counts the alarms.
class ReplayTable {
 public:
  explicit ReplayTable(TextStyle style) : style_(style) {}

  std::string Header() const;
  std::string Row(const AnalyzedReport& report);
  /// "21 reports, 1 alarm, first alarm at step 14400".
  std::string Totals() const;

 private:
  const TextStyle style_;
  std::optional<VerdictState> state_;  // of the row before
  int64_t reports_ = 0;
  int64_t alarms_ = 0;  // begun
  int64_t first_alarm_step_ = 0;
};

/// Prints what the flags ask for. The error names the argument.
absl::Status PrintReplay(const ReplayFlags& flags, Terminal* terminal);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPLAY_COMMAND_H_
