#include "ranks/run_reader.h"

#include <utility>

#include "analysis/alert_text.h"
#include "base/status_macros.h"
#include "journal/directory_status.h"
#include "journal/journal_tail.h"
#include "journal/rank_directory.h"
#include "journal/status_file.h"
#include "ptqwatch/offline/replay.h"

namespace ptqwatch::internal {
namespace {

class OneDirectory final : public RunReader {
 public:
  OneDirectory(const std::string& run_dir, Clock* clock, LineHandlers handlers)
      : run_dir_(run_dir),
        handlers_(std::move(handlers)),
        status_(run_dir, clock),
        tail_(run_dir, {.report = [this](AnalyzedReport report) { OnReport(std::move(report)); },
                        .event = [this](const Event& event) { OnEvent(event); },
                        .unreadable = handlers_.unreadable,
                        .anew = handlers_.anew}) {}

  absl::Status ReadStatus() override {
    PTQWATCH_ASSIGN_OR_RETURN(const RunStatus read, ReadStatusFile(run_dir_));
    status_.OnStatus(read);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> ReadJournal() override { return tail_.Read(); }
  bool known() const override { return status_.known(); }
  bool undecided() const override { return status_.undecided(); }
  RunStatus status() const override { return status_.run_status(); }

 private:
  void OnReport(AnalyzedReport report) {
    status_.OnReport(std::make_shared<const AnalyzedReport>(report));
    handlers_.report(std::move(report));
  }
  void OnEvent(const Event& event) {
    status_.OnEvent(event);
    if (handlers_.event) handlers_.event(event);
  }

  const std::string run_dir_;
  const LineHandlers handlers_;
  DirectoryStatus status_;
  JournalTail tail_;
};

class AllRanks final : public RunReader {
 public:
  AllRanks(const std::string& run_dir, Clock* clock, LineHandlers handlers, RankJournals::Wait wait)
      : handlers_(std::move(handlers)),
        ranks_(run_dir, clock,
               {.report = [this](Report report) { OnReport(std::move(report)); },
                .event = handlers_.event,
                .unreadable = handlers_.unreadable},
               wait) {}

  absl::Status ReadStatus() override { return ranks_.ReadStatus(); }
  absl::StatusOr<bool> ReadJournal() override { return ranks_.ReadJournals(); }
  bool known() const override { return known_ || ranks_.known(); }
  bool undecided() const override { return ranks_.undecided(); }
  RunStatus status() const override { return ranks_.status(); }

 private:
  void OnReport(Report report) {
    known_ = true;
    if (std::exchange(run_id_, report.run_id) != report.run_id) replay_ = Replay();
    AnalyzedReport analyzed{.report = std::move(report), .verdict = {}};
    analyzed.verdict = replay_.Add(analyzed.report);
    const Event alert = AlertOf(analyzed);
    handlers_.report(std::move(analyzed));
    if (!alert.message.empty() && handlers_.event) handlers_.event(alert);
  }

  // As a monitor's.
  Event AlertOf(const AnalyzedReport& analyzed) {
    const Verdict& verdict = analyzed.verdict;
    Event alert{.kind = Event::Kind::kAlert,
                .severity = IsAlarm(verdict.state) ? Severity::kWarning : Severity::kInfo,
                .step = analyzed.report.step,
                .time_unix_seconds = analyzed.report.snapshot_time_unix_seconds,
                .message = {}};
    if (verdict.state != VerdictState::kUnknown) {
      alert.message = AlertText(std::exchange(state_, verdict.state), verdict);
    }
    return alert;
  }

  const LineHandlers handlers_;
  RankJournals ranks_;
  Replay replay_;
  std::string run_id_;
  VerdictState state_ = VerdictState::kUnknown;
  bool known_ = false;  // by a report
};

}  // namespace

absl::Status RunReader::ReadToEnd() {
  while (true) {
    PTQWATCH_ASSIGN_OR_RETURN(const bool more, ReadJournal());
    if (!more) return absl::OkStatus();
  }
}

std::unique_ptr<RunReader> MakeRunReader(const std::string& run_dir, Clock* clock,
                                         LineHandlers handlers, RankJournals::Wait wait) {
  if (RanksIn(run_dir).empty()) {
    return std::make_unique<OneDirectory>(run_dir, clock, std::move(handlers));
  }
  return std::make_unique<AllRanks>(run_dir, clock, std::move(handlers), wait);
}

}  // namespace ptqwatch::internal
