// Mistakes in the arguments of a running monitor.
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "monitor_fixture.h"

namespace ptqwatch {
namespace monitor_misuse_test {

using ::testing::ElementsAre;
using testing::Fault;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct MonitorMisuseTest : MonitorTest {
  // The messages of the events of this kind.
  std::vector<std::string> Messages(Event::Kind kind) {
    std::vector<std::string> messages;
    for (const Event& event : recording->Events()) {
      if (event.kind == kind) messages.push_back(event.message);
    }
    return messages;
  }
  // Takes a snapshot at this step, of parameters that have changed or not.
  const AnalyzedReport& Snapshot(int64_t step, bool moves, double rate = 1e-2) {
    if (moves) trainer.Step();
    monitor->OnStep({.step = step, .learning_rate = rate});
    EXPECT_TRUE(recording->WaitForReports(static_cast<size_t>(++snapshots)));
    newest = recording->Reports().back();
    return *newest;
  }

  int snapshots = 0;
  std::shared_ptr<const AnalyzedReport> newest;
};

TEST_F(MonitorMisuseTest, AModelThatStandsStillIsNotCalledHealthy) {
  Create(Every(1));
  const std::string first = Snapshot(1, true).report.snapshot_digest;
  EXPECT_EQ(first.size(), 32u);
  EXPECT_NE(Snapshot(2, true).report.snapshot_digest, first);
  const std::string second = newest->report.snapshot_digest;
  EXPECT_EQ(Snapshot(3, false).report.snapshot_digest, second);
  EXPECT_THAT(Messages(Event::Kind::kMisuse), IsEmpty());
  EXPECT_EQ(monitor->status().health, Health::kOk);
  const Verdict verdict = Snapshot(4, false).verdict;
  EXPECT_EQ(verdict.state, VerdictState::kUnknown);
  EXPECT_THAT(verdict.summary, HasSubstr("no bit of the parameters has changed from step 2 to step "
                                         "4, at a learning rate of 0.01: was the model replaced"));
  EXPECT_EQ(monitor->status().health, Health::kDegraded);
  EXPECT_EQ(monitor->status().health_reason, verdict.summary);
  Snapshot(5, false);
  EXPECT_EQ(newest->verdict.state, VerdictState::kUnknown);
  EXPECT_NE(Snapshot(6, true).verdict.state, VerdictState::kUnknown);
  EXPECT_TRUE(monitor->Finish(std::chrono::seconds(60)).ok());
  EXPECT_EQ(monitor->status().health, Health::kOk);
  EXPECT_THAT(Messages(Event::Kind::kMisuse),
              ElementsAre(verdict.summary, "the parameters change again, at step 6"));
}

TEST_F(MonitorMisuseTest, AModelThatIsNotTrainedMayStandStill) {
  Create(Every(1));
  Snapshot(1, true);
  for (int64_t step = 2; step <= 5; ++step) Snapshot(step, false, /*rate=*/0);
  EXPECT_EQ(monitor->status().health, Health::kOk);
  EXPECT_NE(newest->verdict.state, VerdictState::kUnknown);
  EXPECT_THAT(Messages(Event::Kind::kMisuse), IsEmpty());
}

TEST_F(MonitorMisuseTest, RatesAndStepsThatCannotBeRightAreToldOnce) {
  Create(Every(1000));
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = 1; step <= 40; ++step) {
      monitor->OnStep({.step = step, .learning_rate = NAN});
    }
  }
  ASSERT_TRUE(recording->WaitForEvents(2));
  ASSERT_TRUE(monitor->Finish(std::chrono::seconds(60)).ok());
  EXPECT_THAT(Messages(Event::Kind::kMisuse),
              ElementsAre(HasSubstr("StepInfo.learning_rate = nan at step 1"),
                          HasSubstr("StepInfo.step = 1 came after 40")));
}

TEST_F(MonitorMisuseTest, AClosureWithoutAGraphIsToldAtCreate) {
  Create(Every(1), Fault::kLossesDetached);
  const std::vector<std::string> messages = Messages(Event::Kind::kProbeDisabled);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("curvature is not measured: the loss has no graph to the "
                                     "weights (does the closure use NoGradGuard or detach?)"));
  EXPECT_EQ(Snapshot(1, true).report.curvature->status, ProbeStatus::kDisabled);
  EXPECT_THAT(newest->report.curvature->status_detail, HasSubstr("no graph"));
}

}  // namespace monitor_misuse_test
}  // namespace ptqwatch
