#include "replay_command.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "command_support.h"
#include "commands.h"
#include "printable.h"
#include "ptqwatch/offline/replay.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace {

std::string Line(std::string step, std::string rate, std::string phase, std::string watched,
                 std::string verdict, std::string_view color, std::string summary) {
  // The columns have the width of their widest usual content, because rows are printed as they are
  // read.
  std::vector<TextCell> cells = {{.text = std::move(step), .width = 8},
                                 {.text = std::move(rate), .width = 7},
                                 {.text = std::move(phase), .width = 10},
                                 {.text = std::move(watched), .width = 18},
                                 {.text = std::move(verdict), .width = 17, .left = true}};
  cells.back().color = color;
  if (!summary.empty()) cells.push_back({.text = std::move(summary), .left = true});
  return TextRow(cells, kColumnGap, kUnlimitedColumns);
}

std::string WatchedCell(const AnalyzedReport& analyzed, bool utf8) {
  const QuantizationReport* const entry = WatchedQuantizer(analyzed);
  if (entry == nullptr) return "-";
  return StrCat(ShortName(KeyOf(*entry)), " ", ErrorRatioCell(*entry, utf8));
}

std::string Counted(int64_t count, std::string_view what) {
  return StrCat(count, " ", what, count == 1 ? "" : "s");
}

// The errors name the argument.
absl::Status PrintReplay(const ReplayFlags& flags, Terminal* terminal) {
  ReplayTable table(terminal->style());
  bool begun = false;
  const auto print = [&](const AnalyzedReport& report) {
    if (flags.json) {
      terminal->JsonLine(ToJson(report));
    } else {
      if (!std::exchange(begun, true)) terminal->Line(table.Header());
      terminal->Line(table.Row(report));
    }
    return !terminal->closed() && terminal->error().ok();
  };
  PTQWATCH_ASSIGN_OR_RETURN(const ReplayedJournal read,
                            ReplayJournal(flags.journal, print, flags.options));
  if (!flags.json) terminal->Line(table.Totals());
  NoteProblems(flags.journal, read, terminal);
  return absl::OkStatus();
}

}  // namespace

std::string ReplayTable::Header() const {
  return Line("step", "lr", "phase", "watched", "verdict", "", "");
}

std::string ReplayTable::Row(const AnalyzedReport& analyzed) {
  const Report& report = analyzed.report;
  const Verdict& verdict = analyzed.verdict;
  const bool changed = std::exchange(state_, verdict.state) != verdict.state;
  ++reports_;
  if (changed && IsAlarm(verdict.state) && alarms_++ == 0) first_alarm_step_ = report.step;
  return Line(StrCat(report.step), RateText(report.learning_rate),
              std::string(ToString(report.lr_phase)), WatchedCell(analyzed, style_.utf8),
              std::string(ToString(verdict.state)), style_.color ? VerdictColor(verdict.state) : "",
              changed ? Printable(verdict.summary) : "");
}

std::string ReplayTable::Totals() const {
  const std::string reports = Counted(reports_, "report");
  if (alarms_ == 0) return StrCat(reports, ", no alarm");
  return StrCat(reports, ", ", Counted(alarms_, "alarm"), ", first alarm at step ",
                first_alarm_step_);
}

int RunReplay(const ReplayFlags& flags, Terminal* terminal) {
  return Finish(PrintReplay(flags, terminal), terminal);
}

}  // namespace ptqwatch::internal
