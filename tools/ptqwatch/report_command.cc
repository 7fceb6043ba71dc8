#include "report_command.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "printable.h"
#include "ptqwatch/offline/follow_run.h"
#include "ptqwatch/run_page.h"
#include "run_name.h"

namespace ptqwatch::internal {
namespace {

// The run as its directory has it now. Another run that began in the directory takes its place.
struct FoundRun {
  RunPage page;
  StatusSource* source = nullptr;
};

class PageExporter final : public Exporter {
 public:
  explicit PageExporter(FoundRun* found) : found_(found) { *found_ = FoundRun(); }

  std::string_view name() const override { return "report"; }
  absl::Status Start(StatusSource* source, Control*) override {
    found_->source = source;
    return absl::OkStatus();
  }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    found_->page.Add(*report);
  }
  void OnEvent(const Event& event) override { found_->page.Add(event); }
  void Stop(std::chrono::milliseconds) override {}

 private:
  FoundRun* const found_;
};

}  // namespace

absl::StatusOr<std::string> WriteRunPage(const ReportFlags& flags, Clock* clock) {
  if (!HoldsRun(flags.run_dir)) {
    return absl::NotFoundError(
        StrCat("no run in ", Quoted(flags.run_dir), ": there is no journal and no status file"));
  }
  FoundRun found;
  const auto follower = RunFollower::Create(
      flags.run_dir,
      [&found]() -> absl::StatusOr<std::vector<std::unique_ptr<Exporter>>> {
        std::vector<std::unique_ptr<Exporter>> exporters;
        exporters.push_back(std::make_unique<PageExporter>(&found));
        return exporters;
      },
      clock);
  while (follower->Poll()) {
  }
  if (found.source == nullptr) {
    return absl::FailedPreconditionError(
        StrCat("the run in ", Quoted(flags.run_dir), " cannot be read; the log says why"));
  }
  const std::string html = found.page.Render(NameOfRun(flags.run_dir), found.source->run(),
                                             found.source->status(), clock->UnixSeconds());
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.output));
  PTQWATCH_RETURN_IF_ERROR(file.Append(html));
  PTQWATCH_RETURN_IF_ERROR(file.Commit());
  return StrCat(Printable(flags.output), ": ", found.page.reports(),
                found.page.reports() == 1 ? " report, " : " reports, ", html.size() / 1000, " kB");
}

}  // namespace ptqwatch::internal
