#include "trajectory/trajectory_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "journal/journal_files.h"
#include "journal/journal_writer.h"
#include "journal/report_line.h"
#include "journal/run_endpoint.h"
#include "journal/run_history.h"
#include "report/report_source.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::seconds kTimeToEnd{5};
// Digits of the fingerprint in a run's name.
constexpr size_t kNameDigits = 12;

std::vector<std::unique_ptr<Exporter>> EndpointOf(std::shared_ptr<RunLock> lock) {
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(MakeRunEndpoint(std::move(lock)));
  return exporters;
}

}  // namespace

absl::StatusOr<int64_t> TrajectoryRun::NoCommands::Do(const Command&) {
  return absl::FailedPreconditionError(
      "a trajectory takes no commands: it measures checkpoints, and no model in training");
}

absl::StatusOr<std::unique_ptr<TrajectoryRun>> TrajectoryRun::Open(
    const std::string& run_dir, const TrajectorySettings& settings, const ModelFacts& facts,
    Clock* clock) {
  PTQWATCH_ASSIGN_OR_RETURN(std::shared_ptr<RunLock> lock, RunLock::Take(run_dir));
  const std::string fingerprint = settings.Fingerprint();
  RunInfo info{.run_id = StrCat("trajectory-", fingerprint.substr(0, kNameDigits)),
               .attempt = 1,
               .fingerprint = fingerprint,
               .run_dir = run_dir,
               .parameters = facts.parameters,
               .covered_parameters = facts.covered_parameters,
               .device = "cpu"};
  std::unique_ptr<TrajectoryRun> run(new TrajectoryRun(std::move(info), std::move(lock), clock));
  PTQWATCH_RETURN_IF_ERROR(run->Resume(settings));
  PTQWATCH_ASSIGN_OR_RETURN(run->journal_,
                            JournalFile::Open(StrCat(run_dir, "/", kJournalFileName), ::write));
  run->board_.SetHealth(Health::kOk);
  PTQWATCH_RETURN_IF_ERROR(run->publisher_->Start(&run->no_commands_, /*required=*/1));
  return run;
}

TrajectoryRun::TrajectoryRun(RunInfo run, std::shared_ptr<RunLock> lock, Clock* clock)
    : clock_(clock),
      publisher_(std::make_unique<Publisher>(std::move(run), &board_, clock,
                                             EndpointOf(std::move(lock)))) {}

TrajectoryRun::~TrajectoryRun() { End(); }

// Reads the reports of earlier processes.
absl::Status TrajectoryRun::Resume(const TrajectorySettings& settings) {
  PTQWATCH_ASSIGN_OR_RETURN(RunHistory history, ReadRunHistory(run_dir()));
  for (const AnalyzedReport& analyzed : history.reports) {
    if (analyzed.report.source == kTrajectorySource) continue;
    return absl::FailedPreconditionError(StrCat("run directory ", Quoted(run_dir()),
                                                " has a live run, ", analyzed.report.run_id,
                                                "; give the trajectory a directory of its own"));
  }
  PTQWATCH_RETURN_IF_ERROR(KeepSettings(run_dir(), settings));
  for (AnalyzedReport& analyzed : history.reports) {
    const Report& report = analyzed.report;
    if (report.fingerprint != fingerprint()) {
      return absl::FailedPreconditionError(
          StrCat("run directory ", Quoted(run_dir()),
                 " has a trajectory of another model, other "
                 "tokens, quantizers, options or seed (fingerprint ",
                 report.fingerprint, ", this is ", fingerprint(),
                 "); give this one a directory of its own"));
    }
    verdicts_.Add(report);
    measured_.emplace(report.branch.value_or(""), report.step);
    sequence_ = std::max(sequence_, report.sequence);
    reports_.push_back(std::move(analyzed));
  }
  board_.Resume(sequence_);
  return absl::OkStatus();
}

bool TrajectoryRun::Has(const std::string& branch, int64_t step) const {
  return measured_.contains({branch, step});
}

double TrajectoryRun::Now() const { return InSeconds(clock_->Monotonic()); }

void TrajectoryRun::Begin(const TrajectoryUnit& unit) {
  steps_.OnStep({.step = unit.checkpoint.step,
                 .learning_rate = unit.rate.learning_rate,
                 .tokens = unit.checkpoint.tokens},
                unit.rate.lr.phase, Now());
  board_.SetBusy(true, Now());
}

void TrajectoryRun::Alive() { board_.Alive(Now()); }

absl::StatusOr<AnalyzedReport> TrajectoryRun::Add(Report report) {
  report.run_id = publisher_->run().run_id;
  report.attempt = publisher_->run().attempt;
  report.fingerprint = fingerprint();
  report.sequence = sequence_ + 1;
  auto analyzed = std::make_shared<AnalyzedReport>();
  analyzed->verdict = verdicts_.Add(report);
  analyzed->report = std::move(report);
  PTQWATCH_RETURN_IF_ERROR(journal_->Append(ReportLine(*analyzed)));
  PTQWATCH_RETURN_IF_ERROR(journal_->Sync());
  const JournalLimits limits;
  if (journal_->size() >= limits.part_bytes) {
    PTQWATCH_ASSIGN_OR_RETURN(journal_,
                              journal_->BeginPart(run_dir(), limits.older_parts, ::write));
  }
  ++sequence_;
  measured_.emplace(analyzed->report.branch.value_or(""), analyzed->report.step);
  reports_.push_back(*analyzed);
  board_.OnReport(sequence_);
  board_.SetBusy(false, Now());
  publisher_->Publish(std::move(analyzed));
  return reports_.back();
}

void TrajectoryRun::End() {
  if (ended_) return;
  ended_ = true;
  board_.SetBusy(false, Now());
  board_.SetHealth(Health::kStopped);
  publisher_->Stop(kTimeToEnd);
}

}  // namespace ptqwatch::internal
