#include "plot_command.h"

#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "gnuplot.h"
#include "plot_script.h"
#include "ptqwatch/offline/replay.h"
#include "run_name.h"

namespace ptqwatch::internal {
namespace {

// The layers of a long run are most of it.
AnalyzedReport WithoutLayers(AnalyzedReport report) {
  for (QuantizationReport& entry : report.report.quantization) entry.layers.clear();
  if (report.report.curvature) report.report.curvature->layers.clear();
  return report;
}

}  // namespace

absl::StatusOr<std::string> WritePlot(const PlotFlags& flags) {
  std::vector<PlottedRun> runs;
  size_t reports = 0;
  for (const std::string& journal : flags.journals) {
    PlottedRun run{.name = NameOfRun(journal), .reports = {}};
    const auto keep = [&](const AnalyzedReport& report) {
      run.reports.push_back(WithoutLayers(report));
      return true;
    };
    PTQWATCH_RETURN_IF_ERROR(ReplayJournal(journal, keep).status());
    reports += run.reports.size();
    runs.push_back(std::move(run));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::string script, PlotScript(runs, flags.options));
  // Before the work, which takes a moment.
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.output));
  PTQWATCH_ASSIGN_OR_RETURN(const std::string image, RunGnuplot(script));
  PTQWATCH_RETURN_IF_ERROR(file.Append(image));
  PTQWATCH_RETURN_IF_ERROR(file.Commit());
  return StrCat(Printable(flags.output), ": ", reports, reports == 1 ? " report, " : " reports, ",
                (image.size() + 999) / 1000, " kB");
}

}  // namespace ptqwatch::internal
