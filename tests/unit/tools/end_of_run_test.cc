#include "end_of_run.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace end_of_run_test {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Recorder final : WatchListener {
  bool OnReport(const AnalyzedReport&, int64_t) override { return true; }
  void OnNotice(std::string_view text) override { notices.emplace_back(text); }
  bool OnTick(bool) override { return !quits; }
  std::vector<std::string> notices;
  bool quits = false;
};

class EndOfRunTest : public ::testing::Test {
 protected:
  void Status(Health health, const std::string& reason = "") {
    RunStatus status;
    status.monitor.health = health;
    status.monitor.health_reason = reason;
    status.monitor.last_sequence = 3;
    end_.OnStatus(status);
  }
  void Silent() { Status(Health::kSilent, "no sign of life for 16 s"); }
  void Report(int64_t sequence) {
    AnalyzedReport report;
    report.report.sequence = sequence;
    EXPECT_TRUE(end_.OnReport(report, 0));
  }
  // Whether it goes on for so many ticks in which nothing comes.
  bool GoesOn(int ticks) {
    for (int i = 0; i < ticks; ++i) {
      if (!end_.OnTick(true)) return false;
    }
    return true;
  }

  testing::FakeClock clock_;
  Recorder view_;
  EndOfRun end_{&view_, /*since=*/0, seconds(60), &clock_};
};

TEST_F(EndOfRunTest, WaitsForARunThatComesBack) {
  Status(Health::kOk);
  Report(3);
  Silent();
  clock_.Advance(seconds(59));
  Silent();
  EXPECT_TRUE(GoesOn(5));
  Status(Health::kOk);
  Silent();
  clock_.Advance(seconds(59));
  Silent();
  EXPECT_TRUE(GoesOn(5));
  EXPECT_THAT(view_.notices, ElementsAre(HasSubstr("no sign of life"), HasSubstr("no sign")));
  clock_.Advance(seconds(1));
  Silent();
  EXPECT_FALSE(GoesOn(5));
  EXPECT_THAT(std::string(end_.failure().message()),
              ::testing::AllOf(HasSubstr("the run died: no sign of life"), HasSubstr("--keep")));
}

TEST_F(EndOfRunTest, ShowsAllOfADeadRunAndEnds) {
  Silent();
  EXPECT_TRUE(GoesOn(5));
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    Report(sequence);
    EXPECT_TRUE(end_.OnTick(true));
  }
  end_.OnEvent({});
  EXPECT_TRUE(end_.OnTick(true));
  EXPECT_TRUE(end_.OnTick(true));
  EXPECT_FALSE(end_.OnTick(true));
  EXPECT_EQ(end_.failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(view_.notices, IsEmpty());
}

TEST_F(EndOfRunTest, EndsIfOnlyNewReportsAreWanted) {
  EndOfRun end(&view_, std::nullopt, seconds(60), &clock_);
  RunStatus status;
  status.monitor.health = Health::kSilent;
  status.monitor.health_reason = "no sign of life for 90 s";
  status.monitor.last_sequence = 7;
  end.OnStatus(status);
  EXPECT_TRUE(end.OnTick(true));
  EXPECT_FALSE(end.OnTick(true));
}

TEST_F(EndOfRunTest, TakesNoOtherTroubleForDeath) {
  Status(Health::kDegraded, "curvature failed");
  Report(3);
  clock_.Advance(seconds(1000));
  Status(Health::kDegraded, "curvature failed");
  EXPECT_TRUE(GoesOn(5));
  EXPECT_TRUE(end_.failure().ok());
}

TEST_F(EndOfRunTest, SaysWhyARunIsNotMeasured) {
  Status(Health::kInert, "nothing is measured: run_dir is full");
  Report(3);
  EXPECT_FALSE(GoesOn(5));
  EXPECT_THAT(std::string(end_.failure().message()), HasSubstr("run_dir is full"));
}

TEST_F(EndOfRunTest, IsNotAFailureWhenTheViewEndsIt) {
  Silent();
  view_.quits = true;
  EXPECT_FALSE(end_.OnTick(true));
  EXPECT_TRUE(end_.failure().ok());
}

}  // namespace end_of_run_test
}  // namespace ptqwatch::internal
