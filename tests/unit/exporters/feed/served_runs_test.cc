#include "feed/served_runs.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace served_runs_test {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ServedRunsTest : public ::testing::Test {
 protected:
  ServedRunsTest() { Show(run_); }
  void Show(const std::shared_ptr<ServedRun>& run) {
    runs_.Add(run);
    runs_.Open(run);
  }
  std::shared_ptr<ServedRun> MakeRun(const std::string& name) {
    return std::make_shared<ServedRun>(
        name, nullptr, ReportHistory::Limits{}, ReportForms{}, [] {}, &clock_);
  }
  void Publish(double snapshot_unix_seconds) {
    AnalyzedReport report = testing::SampleReport();
    report.report.sequence = ++sequence_;
    report.report.snapshot_time_unix_seconds = snapshot_unix_seconds;
    run_->Publish(report);
  }
  double Age() const { return runs_.Look().at(0).report_age_seconds; }
  MonitorStatus Monitor() const { return runs_.Look().at(0).status.monitor; }

  testing::FakeClock clock_;
  ServedRuns runs_;
  const std::shared_ptr<ServedRun> run_ = MakeRun("");
  int64_t sequence_ = 0;
};

TEST_F(ServedRunsTest, HaveNoAgeBeforeTheFirstReport) { EXPECT_TRUE(std::isnan(Age())); }

// The time of day changes by an hour between two reports.
TEST_F(ServedRunsTest, TellAgesByTheMonotonicClock) {
  for (const double step : {-3600.0, 3600.0}) {
    clock_.SetUnixSeconds(1.7e9);
    Publish(clock_.UnixSeconds() - 20);
    clock_.Advance(seconds(10));
    EXPECT_NEAR(Age(), 30, 0.01);
    clock_.SetUnixSeconds(1.7e9 + step);
    EXPECT_NEAR(Age(), 30, 0.01) << step;
    clock_.Advance(seconds(5));
    EXPECT_NEAR(Age(), 35, 0.01) << step;
    Publish(clock_.UnixSeconds() - 20);
    EXPECT_NEAR(Age(), 20, 0.01) << step;
  }
}

// The clock of the trainer is ahead.
TEST_F(ServedRunsTest, TakeAReportOfTheFutureForNew) {
  Publish(clock_.UnixSeconds() + 3600);
  clock_.Advance(seconds(5));
  EXPECT_NEAR(Age(), 5, 0.01);
}

// As if a read of the run directory never returned.
TEST_F(ServedRunsTest, AreDegradedIfTheirFollowerHangs) {
  RunStatus status;
  status.monitor.health = Health::kOk;
  run_->SetStatus(status);
  clock_.Advance(seconds(14));
  EXPECT_EQ(Monitor().health, Health::kOk);
  clock_.Advance(seconds(2));
  EXPECT_EQ(Monitor().health, Health::kSilent);
  EXPECT_THAT(Monitor().health_reason, HasSubstr("no sign of life for 16 s"));
  run_->SetStatus(status);
  EXPECT_EQ(Monitor().health, Health::kOk);
  status.monitor.health = Health::kStopped;
  run_->SetStatus(status);
  clock_.Advance(seconds(100));
  EXPECT_EQ(Monitor().health, Health::kStopped);
}

TEST_F(ServedRunsTest, CountReportsOutOfOrderAndTellTheNewest) {
  Publish(1.7e9);
  sequence_ = 0;
  Publish(1.7e9);
  EXPECT_EQ(Monitor().last_sequence, 1);
  ASSERT_EQ(Monitor().dropped_reports.size(), 1u);
  EXPECT_EQ(Monitor().dropped_reports[0].count, 1);
}

TEST_F(ServedRunsTest, AreFoundByNameAndById) {
  runs_.Remove(run_);
  EXPECT_TRUE(run_->feed.closed());
  EXPECT_TRUE(absl::IsUnavailable(runs_.Find("").status()));
  const auto b = MakeRun("b"), a = MakeRun("a");
  RunStatus status;
  status.run.run_id = "1234";
  a->SetStatus(status);
  Show(b);
  EXPECT_EQ(runs_.Find("")->run, b);
  Show(a);
  EXPECT_EQ(runs_.Find("1234")->status.name, "a");
  EXPECT_EQ(runs_.Find("b")->run, b);
  EXPECT_EQ(runs_.Look()[0].run, a);
  EXPECT_EQ(runs_.Find("").status(), absl::InvalidArgumentError("run must be one of 'a', 'b'"));
  EXPECT_EQ(runs_.Find("c").status(),
            absl::NotFoundError("run 'c' is not served here; the runs are 'a', 'b'"));
}

TEST_F(ServedRunsTest, ShowTheNewestReportWhileThePastIsRead) {
  runs_.Remove(run_);
  const auto run = MakeRun("a");
  runs_.Add(run);
  AnalyzedReport report = testing::SampleReport();
  report.report.sequence = 5;
  run->ShowAheadOfPast(std::make_shared<const AnalyzedReport>(report));
  const auto shown = [&] { return runs_.Look()[0].report->report.sequence; };
  for (report.report.sequence = 1; report.report.sequence <= 5; ++report.report.sequence) {
    run->Publish(report);
    EXPECT_EQ(shown(), 5);
  }
  run->Publish(report);  // published in the meantime
  EXPECT_EQ(shown(), 6);
  EXPECT_TRUE(absl::IsUnavailable(runs_.Find("a").status()));
  runs_.Open(run);
  EXPECT_EQ(shown(), 6);
}

TEST_F(ServedRunsTest, AreClosedToClientsUntilTheirPastIsThere) {
  runs_.Remove(run_);
  const auto run = MakeRun("a");
  runs_.Add(run);
  run->Publish(testing::SampleReport());
  ASSERT_EQ(runs_.Look().size(), 1u);
  EXPECT_EQ(runs_.Look()[0].report, nullptr) << "it may be an old one";
  EXPECT_THAT(runs_.Look()[0].status.monitor.health_reason, HasSubstr("being read"));
  EXPECT_TRUE(absl::IsUnavailable(runs_.Find("a").status()));
  EXPECT_FALSE(runs_.any_open());
  runs_.Open(run);
  EXPECT_NE(runs_.Find("a")->report, nullptr);
  EXPECT_TRUE(runs_.any_open());
}

}  // namespace served_runs_test
}  // namespace ptqwatch::internal
