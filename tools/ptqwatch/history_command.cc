#include <algorithm>
#include <optional>
#include <string>

#include "base/status_macros.h"
#include "base/strings.h"
#include "command_support.h"
#include "commands.h"
#include "journal_tables.h"
#include "printable.h"
#include "ptqwatch/offline/replay.h"
#include "report_table.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace {

bool HasLayers(const AnalyzedReport& analyzed) {
  return std::any_of(analyzed.report.quantization.begin(), analyzed.report.quantization.end(),
                     [](const QuantizationReport& entry) { return !entry.layers.empty(); });
}

bool GoesOn(const Terminal& terminal) { return !terminal.closed() && terminal.error().ok(); }

// The error names the argument.
absl::Status PrintHistory(const HistoryFlags& flags, Terminal* terminal) {
  ReportTable table(terminal->style());
  if (flags.csv) terminal->Line(HistoryCsvHeader());
  const auto print = [&](const AnalyzedReport& report) {
    if (report.report.sequence <= flags.since) return true;
    if (flags.csv) {
      for (const std::string& line : HistoryCsv(report)) terminal->Line(Printable(line));
    } else if (flags.json) {
      terminal->JsonLine(ToJson(report));
    } else {
      const ReportTable::Lines lines =
          table.Add(report, terminal->terminal() ? terminal->columns() : kUnlimitedColumns);
      if (lines.header) terminal->Line(*lines.header);
      terminal->Line(lines.row);
    }
    return GoesOn(*terminal);
  };
  PTQWATCH_ASSIGN_OR_RETURN(const ReplayedJournal read, ReplayJournal(flags.journal, print));
  NoteProblems(flags.journal, read, terminal);
  return absl::OkStatus();
}

absl::Status PrintLayers(const LayersFlags& flags, Terminal* terminal) {
  std::optional<AnalyzedReport> chosen;
  const auto choose = [&](const AnalyzedReport& report) {
    if (HasLayers(report) && (!flags.step || report.report.step == *flags.step)) chosen = report;
    return true;
  };
  PTQWATCH_ASSIGN_OR_RETURN(const ReplayedJournal read, ReplayJournal(flags.journal, choose));
  NoteProblems(flags.journal, read, terminal);
  if (!chosen) {
    return absl::NotFoundError(
        StrCat("'", Printable(flags.journal), "': no report ",
               flags.step ? StrCat("of step ", *flags.step, " (--step) ") : "", "has layers"));
  }
  if (flags.csv) {
    for (const std::string& line : LayerCsv(*chosen)) terminal->Line(Printable(line));
    return absl::OkStatus();
  }
  terminal->Block(LayerTable(*chosen, static_cast<size_t>(flags.top)));
  return absl::OkStatus();
}

}  // namespace

int RunHistory(const HistoryFlags& flags, Terminal* terminal) {
  return Finish(PrintHistory(flags, terminal), terminal);
}

int RunLayers(const LayersFlags& flags, Terminal* terminal) {
  return Finish(PrintLayers(flags, terminal), terminal);
}

}  // namespace ptqwatch::internal
