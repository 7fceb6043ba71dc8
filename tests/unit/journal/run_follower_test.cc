#include <filesystem>

#include "gmock/gmock.h"
#include "journal/journal_writer.h"
#include "journal/status_file.h"
#include "journal_fixture.h"
#include "ptqwatch/offline/follow_run.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace run_follower_test {

Event EventOf(Event::Kind kind) {
  Event event;
  event.kind = kind;
  return event;
}

// What one exporter of a follower was given.
struct Given {
  std::vector<std::string> calls;
  StatusSource* source = nullptr;
};

class NotingExporter final : public Exporter {
 public:
  explicit NotingExporter(std::shared_ptr<Given> given) : given_(std::move(given)) {}
  std::string_view name() const override { return "noting"; }
  absl::Status Start(StatusSource* source, Control*) override {
    given_->source = source;
    given_->calls.emplace_back("start");
    return absl::OkStatus();
  }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    given_->calls.push_back("report " + std::to_string(report->report.sequence));
  }
  void OnEvent(const Event& event) override {
    given_->calls.push_back(std::string(ToString(event.kind)));
  }
  void Stop(std::chrono::milliseconds) override { given_->calls.emplace_back("stop"); }

 private:
  const std::shared_ptr<Given> given_;
};

class RunFollowerTest : public ::testing::Test {
 protected:
  RunFollowerTest() {
    follower_ = RunFollower::Create(
        dir_.path(),
        [this]() -> absl::StatusOr<std::vector<std::unique_ptr<Exporter>>> {
          if (!refusal_.ok()) return refusal_;
          given_.push_back(std::make_shared<Given>());
          std::vector<std::unique_ptr<Exporter>> exporters;
          exporters.push_back(std::make_unique<NotingExporter>(given_.back()));
          return exporters;
        },
        &clock_);
  }
  void Poll() {
    while (follower_->Poll()) {
    }
  }
  void Append(const std::string& line) {
    const std::string path = dir_.File(kJournalFileName);
    WriteFile(path, (std::filesystem::exists(path) ? ReadFile(path) : "") + line + "\n");
  }
  static std::string Report(int64_t sequence, const std::string& run_id) {
    AnalyzedReport report = *ReportNumber(sequence);
    report.report.run_id = run_id;
    return ToJson(report);
  }
  // As a monitor does every second.
  void WriteStatus(int64_t step, Health health = Health::kOk) {
    RunStatus status;
    status.run.run_id = "run-1";
    status.run.attempt = 2;
    status.monitor.step = step;
    status.monitor.health = health;
    status.time_unix_seconds = clock_.UnixSeconds();
    ASSERT_TRUE(WriteStatusFile(dir_.path(), status).ok());
  }

  TempDir dir_;
  testing::FakeClock clock_;
  absl::Status refusal_;
  std::vector<std::shared_ptr<Given>> given_;
  std::unique_ptr<RunFollower> follower_;
};

TEST_F(RunFollowerTest, WaitsForARunThatHasNotBegun) {
  std::filesystem::remove_all(dir_.path());
  Poll();
  EXPECT_FALSE(follower_->following());
  EXPECT_FALSE(HoldsRun(dir_.path()));
  std::filesystem::create_directory(dir_.path());
  WriteStatus(5);
  EXPECT_TRUE(HoldsRun(dir_.path()));
  Poll();
  ASSERT_TRUE(follower_->following());
  EXPECT_EQ(given_[0]->source->status().step, 5);
  EXPECT_EQ(given_[0]->source->run().attempt, 2);
  EXPECT_EQ(given_[0]->source->latest(), nullptr);
}

TEST_F(RunFollowerTest, GivesThePastBeforeItStarts) {
  Append(Report(1, "run-1"));
  Append(EventToJson(EventOf(Event::Kind::kPhaseChange)));
  Append(Report(2, "run-1"));
  Poll();
  ASSERT_EQ(given_.size(), 1u);
  EXPECT_THAT(given_[0]->calls, ElementsAre("report 1", "phase_change", "report 2", "start"));
  Append(Report(3, "run-1"));
  Poll();
  EXPECT_EQ(given_[0]->calls.back(), "report 3");
  EXPECT_EQ(given_[0]->source->latest()->report.sequence, 3);
  // A journal alone says enough of a run without a status file.
  EXPECT_EQ(given_[0]->source->run().run_id, "run-1");
  EXPECT_EQ(given_[0]->source->status().reports_total, 3);
  EXPECT_EQ(given_[0]->source->status().health, Health::kOk);
  Append(EventToJson(EventOf(Event::Kind::kStopped)));
  Poll();
  EXPECT_EQ(given_[0]->source->status().health, Health::kStopped);
  follower_->Stop(seconds(1));
  EXPECT_EQ(given_[0]->calls.back(), "stop");
}

TEST_F(RunFollowerTest, KnowsTheStepOfAReportBeforeTheStatusFileDoes) {
  WriteStatus(1);
  Append(Report(3, "run-1"));
  Poll();
  const MonitorStatus status = given_[0]->source->status();
  EXPECT_GT(given_[0]->source->latest()->report.step, 1);
  EXPECT_EQ(status.step, given_[0]->source->latest()->report.step);
  EXPECT_EQ(status.last_sequence, 3);
}

// The clock of the run's machine is an hour off, or somebody sets this one's.
TEST_F(RunFollowerTest, TakesNoClockForASignOfDeath) {
  for (const double skew : {-3600.0, 3600.0}) {
    WriteStatus(5);
    Poll();
    StatusSource& source = *given_.back()->source;
    clock_.Advance(seconds(1));
    WriteStatus(6);
    Poll();
    clock_.SetUnixSeconds(1.7e9 + skew);
    clock_.Advance(seconds(1));
    Poll();
    EXPECT_EQ(source.status().health, Health::kOk) << skew;
    clock_.Advance(seconds(16));
    Poll();
    EXPECT_EQ(source.status().health, Health::kDegraded) << skew;
    EXPECT_THAT(source.status().health_reason, HasSubstr("no sign of life for 17 s")) << skew;
    clock_.SetUnixSeconds(1.7e9);
  }
}

TEST_F(RunFollowerTest, NoticesThatARunShowsNoSignOfLife) {
  WriteStatus(5);
  Poll();
  StatusSource& source = *given_[0]->source;
  clock_.Advance(seconds(14));
  Poll();
  EXPECT_EQ(source.status().health, Health::kOk);
  clock_.Advance(seconds(2));
  Poll();
  EXPECT_EQ(source.status().health, Health::kDegraded);
  EXPECT_THAT(source.status().health_reason, HasSubstr("no sign of life for 16 s"));
  WriteStatus(6);
  Poll();
  EXPECT_EQ(source.status().health, Health::kOk);
  // One that said that it stopped is not missed.
  clock_.Advance(seconds(1));
  WriteStatus(7, Health::kStopped);
  Poll();
  clock_.Advance(seconds(1000));
  Poll();
  EXPECT_EQ(source.status().health, Health::kStopped);
}

TEST_F(RunFollowerTest, KnowsADeadRunAtOnce) {
  WriteStatus(5);
  clock_.Advance(std::chrono::hours(10));
  Poll();
  EXPECT_EQ(given_[0]->source->status().health, Health::kDegraded);
  EXPECT_THAT(given_[0]->source->status().health_reason, HasSubstr("36000 s"));
}

TEST_F(RunFollowerTest, BeginsAnewWithAnotherRun) {
  Append(Report(7, "run-1"));
  Poll();
  std::filesystem::remove(dir_.File(kJournalFileName));
  Append(Report(1, "run-2"));
  Poll();
  ASSERT_EQ(given_.size(), 2u);
  EXPECT_THAT(given_[0]->calls, ElementsAre("report 7", "start", "stop"));
  EXPECT_THAT(given_[1]->calls, ElementsAre("report 1", "start"));
  EXPECT_EQ(given_[1]->source->run().run_id, "run-2");
}

TEST_F(RunFollowerTest, TriesAgainWhereNoExporterCanBeMade) {
  LogCatcher log;
  refusal_ = absl::AlreadyExistsError("the name is taken");
  WriteStatus(5);
  Poll();
  EXPECT_FALSE(follower_->following());
  EXPECT_THAT(log.WaitForFirst(), HasSubstr("the name is taken"));
  refusal_ = absl::OkStatus();
  Poll();
  EXPECT_TRUE(follower_->following());
}

TEST_F(RunFollowerTest, SaysWhatItCannotRead) {
  LogCatcher log;
  WriteFile(dir_.File(kStatusFileName), "nonsense");
  Append(Report(1, "run-1"));
  Poll();
  EXPECT_TRUE(follower_->following());
  EXPECT_THAT(log.WaitForFirst(), HasSubstr(kStatusFileName));
}

TEST_F(RunFollowerTest, CountsWhatItsOwnExportersDrop) {
  WriteStatus(5);
  Poll();
  given_[0]->source->CountDrop("grpc", "slow_subscriber");
  EXPECT_THAT(given_[0]->source->status().dropped_reports,
              ElementsAre(DroppedReports{"grpc", "slow_subscriber", 1}));
}

}  // namespace run_follower_test
}  // namespace ptqwatch::internal
