#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "monitor_fixture.h"

namespace ptqwatch {
namespace monitor_finish_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(MonitorTest, FinishMeasuresTheLastStepOnce) {
  Create(Every(10));
  for (int64_t step = 1; step <= 13; ++step) Step(step);
  ASSERT_TRUE(monitor->Finish(seconds(60)).ok());
  auto reports = recording->Reports();
  EXPECT_EQ(reports.back()->report.step, 13);
  EXPECT_EQ(reports.back()->report.trigger, SnapshotTrigger::kFinish);
  ASSERT_TRUE(monitor->Finish(seconds(60)).ok());
  EXPECT_EQ(recording->Reports().size(), reports.size());
  EXPECT_FALSE(recording->stopped);
}

TEST_F(MonitorTest, AnIdleScopeEndsTheRestThatTheMonitorWouldTake) {
  MonitorOptions options = Every(1);
  options.clock = &clock;
  options.duty_cycle = 1e-9;  // a snapshot would take years
  Create(options);
  {
    const Monitor::IdleScope idle = monitor->Idle();
    Step(1);
    while (recording->Reports().empty()) std::this_thread::yield();
  }
  EXPECT_EQ(clock.slept().count(), 0);
}

// A machine with almost no time for the monitor, so that its plan is the smallest.
MonitorOptions OnABusyMachine(Clock* clock) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = 10;
  options.clock = clock;
  options.duty_cycle = 1e-9;
  return options;
}

TEST_F(MonitorTest, FinishMeasuresWithEverything) {
  Create(OnABusyMachine(&clock));
  for (int64_t step = 1; step <= 13; ++step) Step(step);
  ASSERT_TRUE(recording->WaitForReports(1));
  ASSERT_TRUE(monitor->Finish(seconds(3600)).ok());
  const auto reports = recording->Reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_LT(reports[0]->report.plan->probe_batches, 6);
  EXPECT_EQ(reports[1]->report.step, 13);
  EXPECT_EQ(reports[1]->report.plan->probe_batches, 6);
  EXPECT_EQ(reports[1]->report.plan->calibration_batches, 4);
  ASSERT_TRUE(reports[1]->report.curvature);
  EXPECT_EQ(reports[1]->report.curvature->status, ProbeStatus::kOk);
}

TEST_F(MonitorTest, FinishMeasuresAStepAgainThatHadLittleData) {
  Create(OnABusyMachine(&clock));
  for (int64_t step = 1; step <= 10; ++step) Step(step);
  ASSERT_TRUE(recording->WaitForReports(1));
  ASSERT_TRUE(monitor->Finish(seconds(3600)).ok());
  ASSERT_TRUE(monitor->Finish(seconds(3600)).ok());
  const auto reports = recording->Reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1]->report.step, 10);
  EXPECT_EQ(reports[1]->report.trigger, SnapshotTrigger::kFinish);
  EXPECT_LT(reports[0]->report.plan->probe_batches, reports[1]->report.plan->probe_batches);
}

TEST_F(MonitorTest, FinishFailsBeforeAStepAndAfterStop) {
  Create(Every(10));
  EXPECT_EQ(monitor->Finish(seconds(1)).code(), absl::StatusCode::kFailedPrecondition);
  Step(1);
  ASSERT_TRUE(monitor->Stop(seconds(5)).ok());
  EXPECT_EQ(monitor->Finish(seconds(1)).code(), absl::StatusCode::kFailedPrecondition);
  monitor->OnStep({.step = 10, .learning_rate = 1});
  EXPECT_EQ(monitor->status().steps_total, 1);
  EXPECT_EQ(monitor->status().health, Health::kStopped);
  EXPECT_TRUE(recording->stopped);
}

TEST_F(MonitorTest, FinishGivesUpInTimeAndTheWorkGoesOn) {
  Create(Every(100));
  gate->Set(false);
  Step(1);
  EXPECT_EQ(monitor->Finish(milliseconds(20)).code(), absl::StatusCode::kDeadlineExceeded);
  gate->Set(true);
  EXPECT_TRUE(monitor->Finish(seconds(60)).ok());
  EXPECT_EQ(recording->Reports().size(), 1u);
}

TEST_F(MonitorTest, FinishPublishesWhatIsReadyWhenItsTimeIsUp) {
  MonitorOptions options = Every(10);
  options.clock = &clock;
  Create(options);
  gate->Set(false);
  Step(1);
  absl::Status status;
  std::thread finish([&] { status = monitor->Finish(seconds(100)); });
  gate->AwaitCaller();
  clock.Advance(seconds(95));
  gate->Set(true);
  finish.join();
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(recording->Reports().size(), 1u);
  const Report report = recording->Reports()[0]->report;
  EXPECT_EQ(report.step, 1);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk);
  for (const QuantizationReport& result : report.quantization) {
    EXPECT_EQ(result.status, ProbeStatus::kOutOfTime);
    EXPECT_FALSE(result.delta_nats);
  }
}

TEST_F(MonitorTest, FinishCutsAnEarlierSnapshotShortForTheLastOne) {
  MonitorOptions options = Every(1);
  options.clock = &clock;
  Create(options);
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  Step(2);
  auto begun = std::make_shared<std::promise<void>>();
  SetLogSink(Severity::kInfo, [begun](Severity, std::string_view message) {
    if (message == "finishing: step 2 is measured within 100 s, after step 1") begun->set_value();
  });
  absl::Status status;
  std::thread finish([&] { status = monitor->Finish(seconds(100)); });
  begun->get_future().wait();
  clock.Advance(seconds(30));
  gate->Set(true);
  finish.join();
  SetLogSink(Severity::kError, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  const auto reports = recording->Reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0]->report.quantization[0].status, ProbeStatus::kOutOfTime);
  EXPECT_EQ(reports[1]->report.step, 2);
  EXPECT_EQ(reports[1]->report.quantization[0].status, ProbeStatus::kOk);
}

TEST_F(MonitorTest, ASecondStopWaitsForTheFirst) {
  Create(Every(1));
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  absl::Status first;
  std::thread stopper([&] { first = monitor->Stop(seconds(100)); });
  // The monitor ignores steps once Stop has begun.
  while (absl::IsDeadlineExceeded(monitor->Finish(std::chrono::milliseconds(1)))) {
  }
  const absl::Status second = monitor->Stop(std::chrono::milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(second)) << second;
  gate->Set(true);
  EXPECT_TRUE(monitor->Stop(seconds(100)).ok());
  EXPECT_EQ(monitor->status().health, Health::kStopped);
  stopper.join();
  EXPECT_TRUE(first.ok()) << first;
}

TEST_F(MonitorTest, FinishCanBeCancelled) {
  Create(Every(10));
  gate->Set(false);
  Step(1);
  CancelToken cancel;
  absl::Status status;
  std::thread finish([&] { status = monitor->Finish(seconds(100), cancel); });
  gate->AwaitCaller();
  cancel.Cancel();
  finish.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  gate->Set(true);
  EXPECT_TRUE(monitor->Finish(seconds(100)).ok());
  EXPECT_EQ(recording->Reports().size(), 1u);
}

}  // namespace monitor_finish_test
}  // namespace ptqwatch
