#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/journal_files.h"
#include "journal/run_lock.h"
#include "journal/status_file.h"
#include "ptqwatch/run_source.h"
#include "support/fake_clock.h"
#include "support/journal_fixture.h"

namespace ptqwatch::internal {
namespace open_run_directory_test {

// Records its calls and runs a test's action at each tick.
class Recorder final : public WatchListener {
 public:
  bool OnReport(const AnalyzedReport& report, int64_t missed) override {
    EXPECT_EQ(missed, 0);
    sequences.push_back(report.report.sequence);
    layers += report.report.quantization.front().layers.size();
    return sequences.size() < wanted;
  }
  void OnEvent(const Event& event) override { events.push_back(event.kind); }
  void OnStatus(const RunStatus& status) override { statuses.push_back(status); }
  void OnNotice(std::string_view text) override { notices.emplace_back(text); }
  void OnTrouble(std::string_view text) override { troubles.emplace_back(text); }
  void OnCaughtUp() override { caught_up_after.push_back(sequences.size()); }
  void OnNewest(const AnalyzedReport& report) override {
    EXPECT_THAT(sequences, ::testing::IsEmpty());
    newest = report.report.sequence;
  }
  bool OnTick(bool) override {
    if (on_tick) on_tick();
    return ++ticks < 50;
  }

  size_t wanted = 1'000;
  std::function<void()> on_tick;
  std::vector<int64_t> sequences;
  size_t layers = 0;
  std::vector<Event::Kind> events;
  std::vector<RunStatus> statuses;
  std::vector<std::string> notices;
  std::vector<std::string> troubles;
  std::vector<size_t> caught_up_after;  // so many reports
  int64_t newest = 0;
  int ticks = 0;
};

Event EventOfKind(Event::Kind kind) {
  Event event;
  event.kind = kind;
  return event;
}

class OpenRunDirectoryTest : public ::testing::Test {
 protected:
  void Append(const std::string& line) {
    const std::string path = dir_.File(kJournalFileName);
    WriteFile(path, (std::filesystem::exists(path) ? ReadFile(path) : "") + line + "\n");
  }
  void AppendReports(int64_t first, int64_t last, const std::string& run_id = "run-1",
                     int attempt = 1) {
    for (int64_t sequence = first; sequence <= last; ++sequence) {
      AnalyzedReport report = *ReportNumber(sequence);
      report.report.run_id = run_id;
      report.report.attempt = attempt;
      Append(ToJson(report));
    }
  }
  void WriteStatus(Health health, int64_t last_sequence = 0, const std::string& host = "") {
    RunStatus status;
    status.host = host;
    status.run.run_id = "run-1";
    status.monitor.step = 7;
    status.monitor.health = health;
    status.monitor.last_sequence = last_sequence;
    status.time_unix_seconds = clock_.UnixSeconds();
    ASSERT_TRUE(WriteStatusFile(dir_.path(), status).ok());
  }
  absl::Status Watch() { return source_->Watch(options_, &recorder_); }

  TempDir dir_;
  testing::FakeClock clock_;
  std::unique_ptr<RunSource> source_ = OpenRunDirectory(dir_.path(), &clock_);
  WatchOptions options_;
  Recorder recorder_;
};

TEST_F(OpenRunDirectoryTest, HasNoRunYet) {
  EXPECT_TRUE(absl::IsNotFound(source_->Status().status()));
  const absl::Status watched = Watch();  // for two seconds
  EXPECT_TRUE(absl::IsNotFound(watched)) << watched;
  EXPECT_THAT(std::string(watched.message()), HasSubstr(dir_.path()));
  EXPECT_TRUE(source_->Reports().value().empty());
  EXPECT_TRUE(absl::IsUnavailable(source_->Do(TakeSnapshot{}).status()));
  EXPECT_EQ(source_->place(), dir_.path());
}

TEST_F(OpenRunDirectoryTest, WaitsForARunThatBegins) {
  recorder_.on_tick = [&] {
    if (recorder_.ticks == 2) AppendReports(1, 1);
  };
  recorder_.wanted = 1;
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1));
}

TEST_F(OpenRunDirectoryTest, StatusComesFromTheFileAndTheJournal) {
  AppendReports(1, 3);
  auto status = source_->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->run.run_id, "run-1");
  EXPECT_EQ(status->run.run_dir, dir_.path());
  EXPECT_EQ(status->name, std::filesystem::path(dir_.path()).filename());
  EXPECT_EQ(status->name, RunNameOf(dir_.path() + "/."));
  EXPECT_EQ(status->monitor.last_sequence, 3);
  EXPECT_EQ(status->monitor.health, Health::kOk);
  WriteStatus(Health::kDegraded);  // of a version that did not count there
  EXPECT_EQ(source_->Status()->monitor.last_sequence, 3);
  WriteStatus(Health::kDegraded, 5);
  EXPECT_EQ(source_->Status()->monitor.last_sequence, 5);
  EXPECT_EQ(source_->Status()->monitor.health, Health::kDegraded);
  EXPECT_EQ(source_->Runs()->size(), 1u);
}

TEST_F(OpenRunDirectoryTest, ARunThatFellSilentIsDegraded) {
  WriteStatus(Health::kOk, 1);
  EXPECT_EQ(source_->Status()->monitor.health, Health::kOk);
  clock_.Advance(std::chrono::seconds(100));
  EXPECT_EQ(source_->Status()->monitor.health, Health::kSilent);
  EXPECT_THAT(source_->Status()->monitor.health_reason, HasSubstr("no sign of life"));
}

TEST_F(OpenRunDirectoryTest, AJournalAloneSaysWhetherTheRunIsOver) {
  AppendReports(1, 2);
  EXPECT_EQ(source_->Status()->monitor.health, Health::kOk);
  EXPECT_EQ(source_->Status()->monitor.reports_total, 2);
  Append(EventToJson(EventOfKind(Event::Kind::kStopped)));
  EXPECT_EQ(source_->Status()->monitor.health, Health::kStopped);
  AppendReports(3, 3, "run-1", 2);
  EXPECT_EQ(source_->Status()->monitor.health, Health::kOk);
}

TEST_F(OpenRunDirectoryTest, KnowsTheStepOfAReportBeforeTheStatusFileDoes) {
  WriteStatus(Health::kOk);
  AppendReports(3, 3);
  const MonitorStatus status = source_->Status()->monitor;
  EXPECT_GT(ReportNumber(3)->report.step, 7);
  EXPECT_EQ(status.step, ReportNumber(3)->report.step);
  EXPECT_EQ(status.last_sequence, 3);
}

// The clock of the run's machine is an hour off, or somebody sets this one's.
TEST_F(OpenRunDirectoryTest, TakesNoClockForASignOfDeath) {
  options_.status_every = std::chrono::milliseconds(0);
  for (const double skew : {-3600.0, 3600.0}) {
    recorder_ = {};
    WriteStatus(Health::kOk);
    recorder_.on_tick = [&] {
      if (recorder_.ticks == 1) WriteStatus(Health::kOk);
      if (recorder_.ticks == 3) clock_.SetUnixSeconds(1.7e9 + skew);
      if (recorder_.ticks == 5) {
        EXPECT_EQ(recorder_.statuses.back().monitor.health, Health::kOk) << skew;
        clock_.Advance(std::chrono::seconds(16));
      }
      if (recorder_.ticks == 7) {
        EXPECT_THAT(recorder_.statuses.back().monitor.health_reason,
                    HasSubstr("no sign of life for 17 s"));
        clock_.SetUnixSeconds(1.7e9);
        WriteStatus(Health::kOk);  // it is back
      }
    };
    EXPECT_TRUE(Watch().ok());
    EXPECT_EQ(recorder_.statuses[9].monitor.health, Health::kOk);
  }
}

// A clock that runs an action whenever somebody sleeps.
class ClockWithAction final : public Clock {
 public:
  explicit ClockWithAction(std::function<void()> action) : action_(std::move(action)) {}
  std::chrono::nanoseconds Monotonic() const override { return clock_.Monotonic(); }
  double UnixSeconds() const override { return clock_.UnixSeconds(); }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>& flag) override {
    clock_.SleepFor(duration, flag);
    action_();
  }

 private:
  testing::FakeClock clock_;
  const std::function<void()> action_;
};

TEST_F(OpenRunDirectoryTest, JudgesARunOnAnotherHostByWhatChanges) {
  for (const double skew : {-3600.0, 3600.0}) {
    clock_.SetUnixSeconds(1.7e9 + skew);  // of that host
    WriteStatus(Health::kOk, 1, "elsewhere");
    ClockWithAction alive([&] {
      clock_.Advance(std::chrono::seconds(1));
      WriteStatus(Health::kOk, 2, "elsewhere");
    });
    const auto living = OpenRunDirectory(dir_.path(), &alive)->Status();
    ASSERT_TRUE(living.ok()) << living.status();
    EXPECT_EQ(living->host, "elsewhere");
    EXPECT_EQ(living->monitor.health, Health::kOk) << skew;
    EXPECT_EQ(living->monitor.last_sequence, 2) << skew;
    ClockWithAction dead([] {});
    const auto silent = OpenRunDirectory(dir_.path(), &dead)->Status();
    ASSERT_TRUE(silent.ok()) << silent.status();
    EXPECT_EQ(silent->monitor.health, Health::kSilent) << skew;
    EXPECT_THAT(silent->monitor.health_reason, HasSubstr("no sign of life"));
    EXPECT_THAT(silent->monitor.health_reason, HasSubstr("on host 'elsewhere'"));
    EXPECT_LT(dead.Monotonic(), std::chrono::seconds(6));
  }
}

TEST_F(OpenRunDirectoryTest, FollowsARunOnAnotherHostWhoseClockIsWrong) {
  options_.status_every = std::chrono::milliseconds(0);
  clock_.SetUnixSeconds(1.7e9 - 3600);
  WriteStatus(Health::kOk, 0, "elsewhere");
  clock_.SetUnixSeconds(1.7e9);
  // A lock on a file of the same inode number, of this machine.
  auto lock = RunLock::Take(dir_.path());
  ASSERT_TRUE(lock.ok()) << lock.status();
  recorder_.on_tick = [&] {
    if (recorder_.ticks == 4) WriteStatus(Health::kOk, 0, "elsewhere");
    if (recorder_.ticks == 5) AppendReports(1, 1);
    if (recorder_.ticks == 10) clock_.Advance(std::chrono::seconds(16));
  };
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1));
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(recorder_.statuses[i].monitor.health, Health::kOk) << i;
  }
  EXPECT_THAT(recorder_.statuses.back().monitor.health_reason, HasSubstr("no sign of life"));
}

TEST_F(OpenRunDirectoryTest, CommandsNameTheHostThatTakesThem) {
  WriteStatus(Health::kOk, 1, "elsewhere");
  const absl::Status refused = source_->Do(Pause{}).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("only on host 'elsewhere'"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr(dir_.path()));
}

TEST_F(OpenRunDirectoryTest, SaysOnceWhatItCannotReadAndGoesOn) {
  WriteFile(dir_.File(kStatusFileName), "nonsense");
  AppendReports(1, 2);
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2));
  EXPECT_THAT(recorder_.troubles, ElementsAre(HasSubstr(kStatusFileName)));
}

TEST_F(OpenRunDirectoryTest, SaysWhenThePastWasGiven) {
  AppendReports(1, 3);
  recorder_.on_tick = [&] {
    if (recorder_.ticks == 5) AppendReports(4, 4);
  };
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(recorder_.caught_up_after, ElementsAre(3));
}

TEST_F(OpenRunDirectoryTest, ARunThatLivesAndFellSilentDoesNotWrite) {
  WriteStatus(Health::kOk, 1);
  auto lock = RunLock::Take(dir_.path());
  ASSERT_TRUE(lock.ok()) << lock.status();
  clock_.Advance(std::chrono::seconds(100));
  EXPECT_EQ(source_->Status()->monitor.health, Health::kDegraded);
  EXPECT_THAT(source_->Status()->monitor.health_reason,
              ::testing::ContainsRegex("^journal not written since [-0-9]+ [:0-9]+ UTC: "));
  lock->reset();
  EXPECT_THAT(source_->Status()->monitor.health_reason, HasSubstr("no sign of life"));
}

TEST_F(OpenRunDirectoryTest, ReportsAreThoseThatAreAskedFor) {
  AppendReports(1, 5);
  AppendReports(5, 5);  // the same line twice
  Append("{damaged");
  EXPECT_EQ(source_->Reports()->size(), 5u);
  const auto some = source_->Reports({.after_sequence = 2, .limit = 2, .without_layers = true});
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 2u);
  EXPECT_EQ(some->front().report.sequence, 3);
  EXPECT_TRUE(some->front().report.quantization.front().layers.empty());
  EXPECT_FALSE(source_->Reports()->front().report.quantization.front().layers.empty());
}

TEST_F(OpenRunDirectoryTest, ReportsOfBranchesRanksAndAttemptsDiffer) {
  AppendReports(1, 1);
  AnalyzedReport report = *ReportNumber(1);
  report.report.run_id = "run-1";
  report.report.attempt = 2;
  Append(ToJson(report));
  report.report.rank = 1;
  Append(ToJson(report));
  report.report.branch = "another";
  Append(ToJson(report));
  Append(ToJson(report));
  EXPECT_EQ(source_->Reports()->size(), 4u);
}

TEST_F(OpenRunDirectoryTest, AnotherRunInTheDirectoryTakesItsPlace) {
  AppendReports(1, 3);
  AppendReports(1, 2, "run-2");
  EXPECT_EQ(source_->Reports()->size(), 2u);
  options_.until_now = true;
  options_.after_sequence = 2;
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(3, 1, 2));
  EXPECT_THAT(recorder_.notices, ElementsAre(HasSubstr("'run-2' in place of 'run-1'")));
}

// Its directory was removed, and MonitorOptions::run_id is the same again.
TEST_F(OpenRunDirectoryTest, ARunStartedAgainUnderItsOldNameIsFollowed) {
  AppendReports(1, 3);
  options_.after_sequence = 0;
  recorder_.on_tick = [&] {
    if (recorder_.ticks != 3) return;
    std::filesystem::remove(dir_.File(kJournalFileName));
    AppendReports(1, 2);
  };
  recorder_.wanted = 5;
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 1, 2));
  EXPECT_THAT(recorder_.notices,
              ElementsAre(HasSubstr("'run-1' in " + dir_.path() + " was started again")));
}

TEST_F(OpenRunDirectoryTest, WatchGivesThePastAndThenWhatComes) {
  AppendReports(1, 2);
  Append(EventToJson(EventOfKind(Event::Kind::kPhaseChange)));
  recorder_.on_tick = [&] {
    if (recorder_.ticks == 3) AppendReports(3, 4);
  };
  recorder_.wanted = 4;
  options_.without_layers = true;
  EXPECT_TRUE(Watch().ok());
  EXPECT_EQ(recorder_.newest, 2) << "ahead of the past";
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(recorder_.events, ElementsAre(Event::Kind::kPhaseChange));
  EXPECT_EQ(recorder_.layers, 0u);
}

TEST_F(OpenRunDirectoryTest, SinceNowGivesOnlyWhatIsNew) {
  AppendReports(1, 2);
  Append(EventToJson(EventOfKind(Event::Kind::kPhaseChange)));
  recorder_.on_tick = [&] {
    if (recorder_.ticks != 3) return;
    Append(EventToJson(EventOfKind(Event::Kind::kAlert)));
    AppendReports(3, 3);
  };
  recorder_.wanted = 1;
  options_.after_sequence.reset();
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(3));
  EXPECT_THAT(recorder_.events, ElementsAre(Event::Kind::kAlert));
}

TEST_F(OpenRunDirectoryTest, RefusesASequenceThatTheRunHasNotReached) {
  AppendReports(1, 2);
  options_.after_sequence = 3;
  EXPECT_TRUE(absl::IsOutOfRange(Watch()));
}

TEST_F(OpenRunDirectoryTest, EndsWithTheRunWhenAsked) {
  AppendReports(1, 1);
  WriteStatus(Health::kOk, 1);
  recorder_.on_tick = [&] {
    if (recorder_.ticks != 3) return;
    AppendReports(2, 2);
    WriteStatus(Health::kStopped, 2);
  };
  options_.exit_when_done = true;
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2));
  EXPECT_LT(recorder_.ticks, 20);
  EXPECT_THAT(recorder_.notices, ::testing::IsEmpty());
}

TEST_F(OpenRunDirectoryTest, WaitsForTheNextAttemptOtherwise) {
  AppendReports(1, 1);
  recorder_.on_tick = [&] {
    if (recorder_.ticks == 3) WriteStatus(Health::kStopped, 1);
    if (recorder_.ticks == 9) AppendReports(2, 2, "run-1", 2);
  };
  recorder_.wanted = 2;
  EXPECT_TRUE(Watch().ok());
  EXPECT_THAT(recorder_.sequences, ElementsAre(1, 2));
  EXPECT_THAT(recorder_.notices, ElementsAre(HasSubstr("is over; waiting")));
}

TEST_F(OpenRunDirectoryTest, GivesTheStatusAsOftenAsAsked) {
  WriteStatus(Health::kOk);
  EXPECT_TRUE(Watch().ok());  // fifty ticks of a quarter of a second
  EXPECT_EQ(recorder_.statuses.size(), 1u);
  recorder_.ticks = 0;
  options_.status_every = std::chrono::seconds(1);
  EXPECT_TRUE(Watch().ok());
  EXPECT_GE(recorder_.statuses.size(), 12u);
  EXPECT_LE(recorder_.statuses.size(), 14u);
}

}  // namespace open_run_directory_test
}  // namespace ptqwatch::internal
