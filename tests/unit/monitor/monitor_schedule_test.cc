// When snapshots are taken: schedules by steps, by time and on a logarithmic scale, and more
// snapshots while the learning rate decays.
#include <functional>
#include <thread>
#include <vector>

#include "monitor_fixture.h"

namespace ptqwatch {
namespace monitor_schedule_test {

using std::chrono::seconds;
using ::testing::ElementsAre;

struct MonitorScheduleTest : MonitorTest {
  // Each step takes a second. `rate` is relative to the peak.
  void Steps(int64_t first, int64_t last, const std::function<double(int64_t)>& rate) {
    for (int64_t step = first; step <= last; ++step) {
      clock.Advance(seconds(1));
      trainer.Step();
      monitor->OnStep({.step = step, .learning_rate = 1e-2 * rate(step)});
      // Each step gives the monitor all the time it needs.
      while (monitor->status().busy || Reports() < Count(SnapshotResult::kTaken)) {
        std::this_thread::yield();
      }
    }
  }
  int64_t Reports() { return monitor->status().reports_total; }
  std::vector<int64_t> ReportedSteps() {
    std::vector<int64_t> steps;
    for (const auto& report : recording->Reports()) steps.push_back(report->report.step);
    return steps;
  }
  static double Stable(int64_t) { return 1; }
  // Falls to zero from step 40 to step 81.
  static double Decay(int64_t step) { return static_cast<double>(81 - step) / 41; }

  void Create(const ScheduleOptions& schedule) {
    MonitorOptions options;
    options.schedule = schedule;
    options.curvature.enabled = false;
    options.duty_cycle = 1.0;
    options.clock = &clock;
    MonitorTest::Create(options);
  }
};

TEST_F(MonitorScheduleTest, TakesMoreSnapshotsWhileTheRateDecays) {
  Create({.every = 20});
  Steps(1, 40, Stable);
  Steps(41, 80, Decay);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 40, 45, 50, 55, 60, 65, 70, 75, 80));
  EXPECT_EQ(Count(SnapshotResult::kTaken), 10);
}

TEST_F(MonitorScheduleTest, TakesNoMoreWithADensityOfOne) {
  Create({.every = 20, .decay_density = 1});
  Steps(1, 40, Stable);
  Steps(41, 80, Decay);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 40, 60, 80));
}

TEST_F(MonitorScheduleTest, PassesOverAdditionalOnesWhileItIsBusyAndCountsNone) {
  Create({.every = 20});
  Steps(1, 40, Stable);
  for (int64_t step = 41; step <= 59; ++step) {
    if (step == 45) gate->Set(false);
    clock.Advance(seconds(1));
    monitor->OnStep({.step = step, .learning_rate = 1e-2 * Decay(step)});
    if (step == 45) gate->AwaitCaller();
  }
  EXPECT_EQ(Count(SnapshotResult::kTaken), 3);
  EXPECT_EQ(Count(SnapshotResult::kSkippedBusy), 0);
  gate->Set(true);
  Steps(60, 60, Decay);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 40, 45, 60));
}

TEST_F(MonitorScheduleTest, PassesOverAdditionalOnesThatWouldHoldUpTheNext) {
  // A second of work costs a hundred years of rest.
  MonitorOptions options;
  options.schedule.every = 20;
  options.curvature.enabled = false;
  options.duty_cycle = 1e-12;
  options.clock = &clock;
  MonitorTest::Create(options);
  Steps(1, 40, Stable);
  Steps(41, 80, Decay);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 40, 60, 80));
  EXPECT_EQ(Count(SnapshotResult::kTaken), 4);
}

TEST_F(MonitorScheduleTest, PausedItTakesNoAdditionalOnes) {
  Create({.every = 20});
  Steps(1, 40, Stable);
  ASSERT_TRUE(monitor->control().Do(Pause{}).ok());
  while (!monitor->status().paused) std::this_thread::yield();
  Steps(41, 60, Decay);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 2);
  EXPECT_EQ(Count(SnapshotResult::kSkippedPaused), 1);
}

// The schedule and the waits must not depend on the time of day.
TEST_F(MonitorScheduleTest, GoesOnWhateverTheTimeOfDayBecomes) {
  Create({.every_seconds = 10});
  Steps(1, 15, Stable);
  clock.SetUnixSeconds(1e9);  // set back by twenty years
  Steps(16, 25, Stable);
  clock.SetUnixSeconds(4e9);
  Steps(26, 35, Stable);
  EXPECT_THAT(ReportedSteps(), ElementsAre(11, 21, 31));
  EXPECT_EQ(Count(SnapshotResult::kTaken), 3);
  EXPECT_EQ(monitor->status().health, Health::kOk);
  std::vector<double> times;
  for (const auto& report : recording->Reports()) {
    times.push_back(report->report.snapshot_time_unix_seconds);
  }
  EXPECT_LT(times[1], times[0]);
  EXPECT_GT(times[2], times[0]);
}

// Such as a stopped process, or a machine that was asleep.
TEST_F(MonitorScheduleTest, TakesOneSnapshotAfterTimeWithoutSteps) {
  Create({.every_seconds = 10});
  Steps(1, 15, Stable);
  clock.Advance(std::chrono::hours(48));
  Steps(16, 35, Stable);
  EXPECT_EQ(Count(SnapshotResult::kTaken), std::ssize(ReportedSteps()));
  EXPECT_THAT(ReportedSteps(), ElementsAre(11, 16, ::testing::_, ::testing::_));
  EXPECT_EQ(monitor->status().health, Health::kOk);
}

TEST_F(MonitorScheduleTest, TakesSnapshotsByTheClock) {
  Create({.every_seconds = 15});
  EXPECT_EQ(monitor->status().every, 0);
  Steps(1, 40, Stable);
  EXPECT_THAT(ReportedSteps(), ElementsAre(16, 31));  // the schedule begins at the first step
  ASSERT_TRUE(monitor->control().Do(SetEvery{8}).ok());
  while (monitor->status().every != 8) std::this_thread::yield();
  Steps(41, 56, Stable);
  EXPECT_THAT(ReportedSteps(), ElementsAre(16, 31, 48, 56));
}

TEST_F(MonitorScheduleTest, TakesSnapshotsOnALogarithmicScale) {
  Create({.log_spaced_per_decade = 2});
  Steps(1, 40, Stable);
  EXPECT_THAT(ReportedSteps(), ElementsAre(1, 4, 10, 32));
}

}  // namespace monitor_schedule_test
}  // namespace ptqwatch
