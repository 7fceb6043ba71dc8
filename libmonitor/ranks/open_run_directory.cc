#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/input_file.h"
#include "base/seen_reports.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "journal/journal_files.h"
#include "journal/newest_report.h"
#include "journal/rank_directory.h"
#include "journal/report_line.h"
#include "journal/run_control.h"
#include "journal/status_file.h"
#include "ptqwatch/run_source.h"
#include "ranks/run_reader.h"

namespace ptqwatch {
namespace internal {
namespace {

using std::chrono::nanoseconds;

// Interval between reads of the journal.
constexpr nanoseconds kLookInterval = std::chrono::milliseconds(250);
constexpr nanoseconds kMaxWaitForRun = std::chrono::seconds(2);

bool IsOver(const RunStatus& status) {
  return status.monitor.health == Health::kStopped || status.monitor.health == Health::kInert;
}

absl::Status NoRunIn(const std::string& run_dir) {
  return absl::NotFoundError(
      StrCat("no run in ", Quoted(run_dir), ": there is no journal and no status file"));
}

void Wait(Clock* clock, nanoseconds duration) {
  static const std::atomic<bool> never{false};
  clock->SleepFor(duration, never);
}

// The state of one call of Watch.
class DirectoryWatch {
 public:
  DirectoryWatch(std::string run_dir, const WatchOptions& options, Clock* clock,
                 WatchListener* listener)
      : run_dir_(std::move(run_dir)), options_(options), clock_(clock), listener_(listener) {}

  absl::Status Run() {
    PTQWATCH_RETURN_IF_ERROR(WaitForRun());
    OpenReader();
    GiveNewest();
    while (!stopped_) {
      // Reads the status before the journal, so that no lines can follow once it says that the run
      // is over.
      ReadAndGiveStatus();
      PTQWATCH_ASSIGN_OR_RETURN(const bool more, ReadJournal());
      if (stopped_ || !listener_->OnTick(true)) return absl::OkStatus();
      if (more) continue;
      if (std::exchange(caught_up_, true) == false) {
        PTQWATCH_RETURN_IF_ERROR(CheckReached());
        listener_->OnCaughtUp();
      }
      if (options_.until_now || (options_.exit_when_done && over_)) return absl::OkStatus();
      Wait(clock_, std::min<nanoseconds>(options_.tick, kLookInterval));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WaitForRun() {
    const nanoseconds until = clock_->Monotonic() + options_.give_up_after.value_or(kMaxWaitForRun);
    while (!HoldsRun(run_dir_)) {
      if (clock_->Monotonic() >= until || options_.until_now) return NoRunIn(run_dir_);
      stopped_ = !listener_->OnTick(false);
      if (stopped_) return absl::OkStatus();
      Wait(clock_, std::min<nanoseconds>(options_.tick, kLookInterval));
    }
    return absl::OkStatus();
  }

  void OpenReader() {
    reader_ = MakeRunReader(
        run_dir_, clock_,
        {.report = [this](AnalyzedReport report) { OnReport(std::move(report)); },
         .event = [this](const Event& event) { OnEvent(event); },
         .unreadable = [] {},
         .anew = [this] { anew_ = true; }},
        options_.until_now ? RankJournals::Wait::kNotLong : RankJournals::Wait::kForRanks);
  }

  // Ignores errors, because reading the whole journal reports them.
  void GiveNewest() {
    const auto newest = ReadNewestReport(run_dir_);
    if (newest.ok() && *newest) listener_->OnNewest(**newest);
  }

  void ReadAndGiveStatus() {
    const absl::Status read = reader_->ReadStatus();
    if (!read.ok() && !absl::IsNotFound(read)) Trouble(std::string(Message(read)));
    if (!reader_->known()) return;
    RunStatus now = reader_->status();
    now.name = RunNameOf(run_dir_);
    const bool was_over = std::exchange(over_, IsOver(now));
    if (over_ && !was_over && caught_up_ && !options_.exit_when_done) {
      listener_->OnNotice(
          StrCat("the run in ", run_dir_, " is over; waiting for its next attempt"));
    }
    const nanoseconds time = clock_->Monotonic();
    if (given_ && (!options_.status_every || time - *given_ < *options_.status_every)) return;
    given_ = time;
    listener_->OnStatus(now);
  }

  // Retries later, because an unreadable file may become readable.
  absl::StatusOr<bool> ReadJournal() {
    const absl::StatusOr<bool> more = reader_->ReadJournal();
    if (more.ok()) return more;
    if (options_.until_now) return more.status();
    Trouble(std::string(Message(more.status())));
    return false;
  }

  absl::Status CheckReached() const {
    if (options_.after_sequence.value_or(0) <= newest_) return absl::OkStatus();
    return absl::OutOfRangeError(StrCat("the run in ", run_dir_, " has not reached report ",
                                        *options_.after_sequence, ": its newest is ", newest_));
  }

  void OnReport(AnalyzedReport analyzed) {
    Report& report = analyzed.report;
    if (stopped_) return;
    if (!run_id_.empty() && run_id_ != report.run_id) {
      listener_->OnNotice(StrCat("another run is in ", run_dir_, " now: ", Quoted(report.run_id),
                                 " in place of ", Quoted(run_id_)));
      another_run_ = true;
    } else if (anew_ && !run_id_.empty()) {
      // Its numbers begin anew, too.
      listener_->OnNotice(
          StrCat("the run ", Quoted(run_id_), " in ", run_dir_, " was started again"));
      another_run_ = true;
      seen_ = {};
      newest_ = 0;
    }
    anew_ = false;
    run_id_ = report.run_id;
    newest_ = std::max(newest_, report.sequence);
    if (!seen_.Add(report) || !Wanted(report.sequence)) return;
    if (options_.without_layers) LeaveLayersOut(report);
    stopped_ = !listener_->OnReport(analyzed, /*missed=*/0);
  }

  bool Wanted(int64_t sequence) const {
    if (another_run_) return true;
    return options_.after_sequence ? sequence > *options_.after_sequence : caught_up_;
  }

  void OnEvent(const Event& event) {
    if (stopped_) return;
    // Events before the first requested report are not requested either.
    if (caught_up_ || options_.after_sequence == 0) listener_->OnEvent(event);
  }

  // Reports each text once until it changes.
  void Trouble(std::string text) {
    if (text == trouble_) return;
    listener_->OnTrouble(text);
    trouble_ = std::move(text);
  }

  const std::string run_dir_;
  const WatchOptions options_;
  Clock* const clock_;
  WatchListener* const listener_;
  std::unique_ptr<RunReader> reader_;
  SeenReports seen_;
  std::string run_id_;
  std::string trouble_;
  std::optional<nanoseconds> given_;  // when the status was delivered
  int64_t newest_ = 0;
  bool another_run_ = false;
  bool anew_ = false;       // another journal has begun
  bool caught_up_ = false;  // the existing journal has been read
  bool over_ = false;
  bool stopped_ = false;  // by the listener
};

class RunDirectory final : public RunSource {
 public:
  RunDirectory(std::string run_dir, Clock* clock) : run_dir_(std::move(run_dir)), clock_(clock) {}

  std::string place() const override { return run_dir_; }

  absl::StatusOr<RunStatus> Status() override {
    return Guard([&]() -> absl::StatusOr<RunStatus> {
      if (!HoldsRun(run_dir_)) return NoRunIn(run_dir_);
      const LineHandlers ignore{
          .report = [](const AnalyzedReport&) {}, .event = nullptr, .unreadable = [] {}};
      const auto reader = MakeRunReader(run_dir_, clock_, ignore, RankJournals::Wait::kNotLong);
      const absl::Status read = reader->ReadStatus();
      if (!read.ok() && !absl::IsNotFound(read)) return read;
      while (reader->undecided()) {
        Wait(clock_, kLookInterval);
        reader->ReadStatus().IgnoreError();  // it was read before
      }
      // The run has no status file, or its version did not count reports there. Merged reports are
      // counted, and replicas compared, only by reading the journals of all ranks.
      if (!read.ok() || reader->status().monitor.last_sequence == 0 || !RanksIn(run_dir_).empty()) {
        PTQWATCH_RETURN_IF_ERROR(reader->ReadToEnd());
      }
      RunStatus now = reader->status();
      now.name = RunNameOf(run_dir_);
      return now;
    });
  }

  absl::StatusOr<std::vector<RunStatus>> Runs() override {
    PTQWATCH_ASSIGN_OR_RETURN(RunStatus status, Status());
    return std::vector<RunStatus>{std::move(status)};
  }

  absl::StatusOr<std::vector<AnalyzedReport>> Reports(const ReportQuery& query) override {
    return Guard([&]() -> absl::StatusOr<std::vector<AnalyzedReport>> {
      std::vector<AnalyzedReport> reports;
      SeenReports seen;
      std::string run_id;
      const auto keep = [&](AnalyzedReport analyzed) {
        Report& report = analyzed.report;
        if (std::exchange(run_id, report.run_id) != report.run_id) reports.clear();
        if (!seen.Add(report) || report.sequence <= query.after_sequence) return;
        if (query.limit > 0 && static_cast<int64_t>(reports.size()) >= query.limit) return;
        if (query.without_layers) LeaveLayersOut(report);
        reports.push_back(std::move(analyzed));
      };
      const auto reader =
          MakeRunReader(run_dir_, clock_, {.report = keep, .event = nullptr, .unreadable = [] {}},
                        RankJournals::Wait::kNotLong);
      reader->ReadStatus().IgnoreError();  // shows whether a rank still owes a report
      PTQWATCH_RETURN_IF_ERROR(reader->ReadToEnd());
      return reports;
    });
  }

  absl::Status Watch(const WatchOptions& options, WatchListener* listener) override {
    return Guard([&] { return DirectoryWatch(run_dir_, options, clock_, listener).Run(); });
  }

  absl::StatusOr<int64_t> Do(const Command& command) override {
    absl::StatusOr<int64_t> done = DoAtAll(command);
    if (done.ok()) return done;
    return absl::Status(done.status().code(), Printable(Message(done.status())));
  }

 private:
  // Asks the run, or each rank of it. One rank alone makes a slice, for example, and the others
  // refuse.
  absl::StatusOr<int64_t> DoAtAll(const Command& command) const {
    const std::vector<int64_t> ranks = RanksIn(run_dir_);
    if (ranks.empty()) return RunControl(run_dir_).Do(command);
    PTQWATCH_ASSIGN_OR_RETURN(const int64_t newest, NewestMerged());
    std::optional<int64_t> done;
    absl::Status refusal, silence;
    for (const int64_t rank : ranks) {
      const absl::StatusOr<int64_t> answer = RunControl(RankDirectory(run_dir_, rank)).Do(command);
      if (answer.ok()) {
        done = std::max(*answer, done.value_or(0));
      } else {
        (absl::IsUnavailable(answer.status()) ? silence : refusal).Update(answer.status());
      }
    }
    if (!done) return refusal.ok() ? silence : refusal;
    const bool is_job = std::holds_alternative<MakeSlice>(command) ||
                        std::holds_alternative<StartCooldown>(command);
    return is_job ? *done : newest;
  }

  // A rank answers with the sequence of its own newest report.
  absl::StatusOr<int64_t> NewestMerged() const {
    int64_t newest = 0;
    const auto reader = MakeRunReader(
        run_dir_, clock_,
        {.report = [&](const AnalyzedReport& analyzed) { newest = analyzed.report.sequence; },
         .event = nullptr,
         .unreadable = [] {}},
        RankJournals::Wait::kNotLong);
    reader->ReadStatus().IgnoreError();
    PTQWATCH_RETURN_IF_ERROR(reader->ReadToEnd());
    return newest;
  }

  const std::string run_dir_;
  Clock* const clock_;
};

}  // namespace
}  // namespace internal

bool HoldsRun(const std::string& run_dir) {
  const auto is_there = [](const std::string& path) {
    return internal::InputFile::Open(path).ok();
  };
  const std::vector<int64_t> ranks = internal::RanksIn(run_dir);
  if (std::any_of(ranks.begin(), ranks.end(),
                  [&](int64_t rank) { return HoldsRun(internal::RankDirectory(run_dir, rank)); })) {
    return true;
  }
  if (is_there(internal::StrCat(run_dir, "/", internal::kStatusFileName))) return true;
  const auto paths = internal::JournalPaths(run_dir);
  return paths.ok() && std::any_of(paths->begin(), paths->end(), is_there);
}

std::string RunNameOf(const std::string& run_dir) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(run_dir, error).lexically_normal();
  const std::string last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  return last.empty() ? run_dir : last;
}

std::unique_ptr<RunSource> OpenRunDirectory(std::string run_dir, Clock* clock) {
  return std::make_unique<internal::RunDirectory>(std::move(run_dir), clock);
}

}  // namespace ptqwatch
