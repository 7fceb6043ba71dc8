#include <memory>
#include <string>
#include <utility>

#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "command_support.h"
#include "commands.h"
#include "printable.h"
#include "ptqwatch/run_page.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

class PageListener final : public WatchListener {
 public:
  bool OnReport(const AnalyzedReport& report, int64_t) override {
    // Another run that began in the directory takes over the page.
    if (std::exchange(run_id_, report.report.run_id) != report.report.run_id) {
      if (page.reports() > 0) page = RunPage();
    }
    page.Add(report);
    return true;
  }
  void OnEvent(const Event& event) override { page.Add(event); }

  RunPage page;

 private:
  std::string run_id_;
};

// Writes the page of the run and returns a summary. The file is written completely or not at all.
// Errors name the argument.
absl::StatusOr<std::string> WriteRunPage(const ReportFlags& flags, Clock* clock) {
  const std::unique_ptr<RunSource> source = OpenRunDirectory(flags.run_dir, clock);
  PageListener listener;
  PTQWATCH_RETURN_IF_ERROR(source->Watch({.until_now = true}, &listener));
  PTQWATCH_ASSIGN_OR_RETURN(const RunStatus status, source->Status());
  const RunPage& page = listener.page;
  const std::string html =
      page.Render(RunNameOf(flags.run_dir), status.run, status.monitor, clock->UnixSeconds());
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.output));
  PTQWATCH_RETURN_IF_ERROR(file.Append(html));
  PTQWATCH_RETURN_IF_ERROR(file.Commit());
  return StrCat(Printable(flags.output), ": ", page.reports(),
                page.reports() == 1 ? " report, " : " reports, ", html.size() / 1000, " kB");
}

}  // namespace

int RunReport(const ReportFlags& flags, Clock* clock, Terminal* terminal) {
  const absl::StatusOr<std::string> written = WriteRunPage(flags, clock);
  if (!written.ok()) return Fail(written.status(), terminal);
  terminal->Line(*written);
  return Finish(terminal);
}

}  // namespace ptqwatch::internal
