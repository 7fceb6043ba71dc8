#include "budget/work_budget.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>

#include "base/thread_priority.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace work_budget_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Task = WorkBudget::Task;

const PlanModel kModel{{.probe_batches = 32, .calibration_batches = 16, .curvature_sequences = 64},
                       SnapshotCosts({{.fixed = 0.4, .probe_batch = 0.5, .calibration_batch = 0.1},
                                      {.with_curvature = true, .curvature_sequence = 1}})};

class WorkBudgetTest : public ::testing::Test {
 protected:
  void Make(const WorkBudget::Options& options) {
    budget_ = std::make_unique<WorkBudget>(options, Planner(kModel, Plan{4, 2, 8, 3}), &clock_,
                                           pacer_, &switches_, &board_, [this] { return Read(); });
  }
  // Two CPUs; training uses `busy_` of them.
  std::optional<CpuReading> Read() {
    const double now = std::chrono::duration<double>(clock_.Monotonic()).count();
    reading_.idle += (now - reading_.wall) * (2 - busy_);
    reading_.wall = now;
    return reading_;
  }
  // Begins before it is known whether a core is spare.
  void Begin(double busy) {
    busy_ = busy;
    budget_->Enter();
    clock_.Wait(seconds(2));
    budget_->Begin(Task::kSnapshot);
    budget_->End();
  }
  void Work(milliseconds duration) {
    pacer_.Begin();
    clock_.Advance(duration);
    pacer_.Pause(CancelToken());
  }
  int64_t rest_until() const { return switches_.rest_until_ns; }

  testing::FakeClock clock_;
  double busy_ = 2;
  CpuReading reading_;
  Pacer pacer_{1, &clock_};
  TrainerSwitches switches_{10};
  TrainerBoard steps_;
  StatusBoard board_{&steps_};
  std::unique_ptr<WorkBudget> budget_;
};

TEST_F(WorkBudgetTest, BeginsSlowlyAndWithoutRests) {
  Make({.cores = {.cores_exceed_threads = true}});
  EXPECT_TRUE(budget_->spare());
  EXPECT_EQ(budget_->share(), 0.25);
  budget_->Charge(10);
  EXPECT_EQ(budget_->RestSeconds(), 0);
  Make({});
  EXPECT_FALSE(budget_->spare());
  EXPECT_EQ(budget_->share(), 0.25);
  EXPECT_DOUBLE_EQ(budget_->long_run_share(), 0.02);
  EXPECT_FALSE(budget_->rests());
}

TEST_F(WorkBudgetTest, WorksWithoutPauseOnASpareCore) {
  Make({});
  Begin(1);
  EXPECT_EQ(budget_->share(), 1);
  budget_->Charge(100);
  EXPECT_EQ(budget_->RestSeconds(), 0);
}

TEST_F(WorkBudgetTest, RestsUntilItsWorkIsWithinTheOverhead) {
  Make({.max_overhead = 0.02});
  Begin(2);
  EXPECT_EQ(budget_->RestSeconds(), 0);
  budget_->Charge(2.04);  // 2 s have passed
  // 2 s are 2 % of 100 s.
  EXPECT_NEAR(budget_->RestSeconds(), 100, 1e-6);
  clock_.Wait(seconds(50));
  EXPECT_NEAR(budget_->RestSeconds(), 50, 1e-6);
  clock_.Wait(seconds(50));
  EXPECT_NEAR(budget_->RestSeconds(), 0, 1e-6);
}

TEST_F(WorkBudgetTest, SavesUpNoMoreThanHalfAMinuteOfWork) {
  Make({.max_overhead = 0.02});
  Begin(2);
  clock_.Wait(std::chrono::hours(24));
  budget_->Charge(29);
  EXPECT_EQ(budget_->RestSeconds(), 0);
  budget_->Charge(3);
  EXPECT_NEAR(budget_->RestSeconds(), 100, 1e-6);  // 2 s are 2 % of 100 s
}

TEST_F(WorkBudgetTest, AGpuThatTrainsIsChargedForItsWork) {
  Make({.cores = {.cores_exceed_threads = true, .on_training_device = true}});
  Begin(1);
  EXPECT_EQ(budget_->share(), 0.25);
  EXPECT_DOUBLE_EQ(budget_->long_run_share(), 0.02);  // max_overhead
  budget_->Charge(1);
  EXPECT_GT(budget_->RestSeconds(), 0);
  budget_->BeginFullSpeed();
  EXPECT_EQ(budget_->share(), 1);
}

TEST_F(WorkBudgetTest, RestsOnASpareCoreIfStepsTakeLongerMeanwhile) {
  Make({.max_overhead = 0.02});
  Begin(1);
  for (int i = 0; i < 60; ++i) budget_->ChargeSteps({.ratio = 0.14, .stderr_ratio = 0.01});
  EXPECT_NEAR(budget_->long_run_share(), 0.02 / 0.14, 1e-3);
  EXPECT_EQ(budget_->share(), 1);
  budget_->Charge(10);
  EXPECT_NEAR(budget_->RestSeconds(), 68, 0.5);  // 70, of which 2 have passed
  for (int i = 0; i < 60; ++i) budget_->ChargeSteps({.ratio = 0.01, .stderr_ratio = 0.001});
  EXPECT_EQ(budget_->long_run_share(), 1);
  EXPECT_NEAR(budget_->RestSeconds(), 68, 0.5);  // the loss has been repaid
  clock_.Wait(seconds(80));
  budget_->Charge(10);
  EXPECT_EQ(budget_->RestSeconds(), 0);
}

TEST_F(WorkBudgetTest, ChargesMoreThanTheWorkIfStepsShowIt) {
  Make({.max_overhead = 0.02});
  Begin(2);
  // The monitor works a quarter of the time.
  for (int i = 0; i < 60; ++i) budget_->ChargeSteps({.ratio = 0.2, .stderr_ratio = 0.01});
  EXPECT_DOUBLE_EQ(budget_->long_run_share(), 0.02);
  for (int i = 0; i < 60; ++i) budget_->ChargeSteps({.ratio = 0.5, .stderr_ratio = 0.01});
  EXPECT_NEAR(budget_->long_run_share(), 0.01, 1e-3);
}

TEST_F(WorkBudgetTest, ChargesCopiesThatAreNoticed) {
  for (const double busy : {1, 2}) {
    Make({.max_overhead = 0.02});
    Begin(busy);
    budget_->ChargeCopy(0.04);
    EXPECT_EQ(budget_->RestSeconds(), 0);
    budget_->ChargeCopy(2.04);  // 2 s have passed
    EXPECT_NEAR(budget_->RestSeconds(), 100, 1e-6);
  }
}

TEST_F(WorkBudgetTest, ChargesTheServerBesideTheRun) {
  double server = 3;
  Make({.max_overhead = 0.02});
  budget_->WatchServer([&] { return server; });
  Begin(2);
  const double charged = budget_->RestSeconds();
  EXPECT_NEAR(charged, 3 / 0.02 - 2, 1e-6);
  server = 5;
  budget_->Begin(Task::kSnapshot);
  EXPECT_NEAR(budget_->RestSeconds(), charged + 2 / 0.02, 1e-6);
  server = 1;  // another server
  budget_->Begin(Task::kSnapshot);
  EXPECT_NEAR(budget_->RestSeconds(), charged + 3 / 0.02, 1e-6);
  steps_.OnStep({}, LrPhase::kStable, 100);
  EXPECT_NEAR(*board_.Read(200, 0).overhead_ratio, 6.0 / 100, 1e-6);
}

TEST_F(WorkBudgetTest, TheServerIsFreeOnASpareCore) {
  double server = 0;
  Make({});
  budget_->WatchServer([&] { return server; });
  Begin(1);
  server = 5;
  budget_->Begin(Task::kSnapshot);
  EXPECT_EQ(budget_->RestSeconds(), 0);
}

TEST_F(WorkBudgetTest, AsksForNoLongRestWhenTheSpareCoreIsLost) {
  Make({.max_overhead = 0.02});
  Begin(1);
  clock_.Wait(seconds(1000));
  budget_->Charge(1000);  // free of charge
  busy_ = 2;
  Begin(2);
  ASSERT_FALSE(budget_->spare());
  EXPECT_EQ(budget_->RestSeconds(), 0);
}

TEST_F(WorkBudgetTest, KeepsADutyCycleThatWasAskedFor) {
  Make({.fixed_duty_cycle = 0.5});
  Begin(0);
  budget_->Charge(10);
  EXPECT_EQ(budget_->share(), 0.5);
  EXPECT_EQ(budget_->long_run_share(), 0.5);
  EXPECT_EQ(budget_->RestSeconds(), 0);
}

TEST_F(WorkBudgetTest, LeavesCurvatureOutWhileAJobWaits) {
  Make({});
  const double curvature = kModel.Curvature({4, 2, 8, 3});
  EXPECT_EQ(budget_->NextPlan({.interval_seconds = 4.1 * curvature, .job_waits = true}),
            (Plan{4, 2, 8, 3}));
  Make({});
  EXPECT_EQ(budget_->NextPlan({.interval_seconds = 3.9 * curvature, .job_waits = true}),
            (Plan{4, 2, 0, 3}));
}

TEST_F(WorkBudgetTest, AddsQuickCurvatureToTheLastSnapshot) {
  Make({});
  EXPECT_EQ(budget_->NextPlan({}).curvature_sequences, 8);
  EXPECT_EQ(budget_->NextPlan({}).curvature_sequences, 0);
  EXPECT_EQ(budget_->NextPlan({.at_finish = true}).curvature_sequences, 8);
  EXPECT_EQ(budget_->NextPlan({.at_finish = true, .seconds_to_finish = 1000}), kModel.Full());
}

TEST_F(WorkBudgetTest, AdditionalSnapshotsHaveTheTimeBetweenThem) {
  Make({.fixed_duty_cycle = 0.5, .decay_density = 4});
  const double whole = kModel.Whole({4, 2, 8, 3});
  const double enough = whole * 4 / 0.5 / 0.9;
  EXPECT_EQ(budget_->AdditionalPlan(1.01 * enough).curvature_sequences, 8);
  EXPECT_EQ(budget_->AdditionalPlan(0.99 * enough).curvature_sequences, 0);
  budget_->OfferAdditional(1.01 * enough);
  EXPECT_DOUBLE_EQ(switches_.additional_seconds, whole / 0.5);
}

// MonitorOptions::max_snapshot_time
TEST_F(WorkBudgetTest, FitsPlansToTheTimeAfterWhichASnapshotIsCutShort) {
  Make({.max_overhead = 0.02, .longest_snapshot_seconds = 6});
  Begin(1);  // a core is spare
  const Plan before = budget_->NextPlan({.interval_seconds = 1000});
  EXPECT_GT(kModel.Whole(before), 6);
  SnapshotWork work{before, {{"", 6}}, /*cut_short=*/true};
  budget_->Learn(work, 1000);
  EXPECT_TRUE(budget_->Learn(work, 1000));
  const PlanModel& model = budget_->planner().model();
  EXPECT_LE(model.Quantization(budget_->planner().plan()), 3);
  EXPECT_LE(model.Whole(budget_->planner().plan()), 6);
  EXPECT_LE(model.Whole(budget_->NextPlan({.interval_seconds = 1000, .additional = true})), 6);
  EXPECT_FALSE(budget_->LastPlan(1000));
  Make({.max_overhead = 0.02});
  EXPECT_EQ(budget_->LastPlan(1000), kModel.Full());
}

TEST_F(WorkBudgetTest, TakesNoSnapshotWhileOneIsMeasuredAndUntilItIsPaidFor) {
  Make({});
  budget_->Enter();
  EXPECT_EQ(rest_until(), 0);
  clock_.Advance(milliseconds(200));
  budget_->Begin(Task::kSnapshot);
  EXPECT_EQ(rest_until(), std::numeric_limits<int64_t>::max());
  const auto begin = clock_.Monotonic();
  Work(seconds(1));
  EXPECT_NEAR(static_cast<double>(clock_.slept().count()), 3e9, 1e8);  // a quarter of the time
  budget_->End();
  // 1 s is 2 % of 50 s.
  EXPECT_NEAR(1e-9 * static_cast<double>(rest_until() - begin.count()), 50, 0.3);
  EXPECT_DOUBLE_EQ(board_.Read(0, 0).duty_cycle, 0.02);
}

TEST_F(WorkBudgetTest, WorksOnWithoutRestOnASpareCore) {
  Make({});
  busy_ = 1;
  budget_->Enter();
  clock_.Advance(seconds(2));
  budget_->Begin(Task::kSnapshot);
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(5));
  budget_->End();
  EXPECT_EQ(rest_until(), 0);
  EXPECT_EQ(clock_.slept().count(), 0);
  EXPECT_EQ(board_.Read(0, 0).duty_cycle, 1);
}

TEST_F(WorkBudgetTest, GivesNoTimeToJobsWithoutASpareCore) {
  Make({});
  budget_->Enter();
  clock_.Advance(milliseconds(200));
  EXPECT_FALSE(budget_->Begin(Task::kJob));
  EXPECT_FALSE(switches_.measuring);
  // Training waits, so there is time.
  budget_->BeginFullSpeed();
  EXPECT_TRUE(budget_->Begin(Task::kJob));
  budget_->EndFullSpeed();
  EXPECT_FALSE(budget_->job_may_run());
  budget_->End();
}

TEST_F(WorkBudgetTest, TakesSnapshotsWhileAJobRuns) {
  Make({});
  busy_ = 1;
  budget_->Enter();
  clock_.Advance(seconds(2));
  ASSERT_TRUE(budget_->Begin(Task::kJob));
  EXPECT_TRUE(switches_.measuring);
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(5));
  EXPECT_TRUE(budget_->job_may_run());
  budget_->End();
  EXPECT_FALSE(switches_.measuring);
  EXPECT_EQ(rest_until(), 0);
}

TEST_F(WorkBudgetTest, NoticesWhileItWorksThatTheCoreIsGone) {
  Make({});
  busy_ = 1;
  budget_->Enter();
  clock_.Advance(seconds(2));
  budget_->Begin(Task::kSnapshot);
  busy_ = 2;
  Work(seconds(2));
  EXPECT_GT(clock_.slept(), seconds(5));
  EXPECT_EQ(rest_until(), std::numeric_limits<int64_t>::max());
}

TEST_F(WorkBudgetTest, IsNotChargedForWaiting) {
  Make({});
  budget_->Enter();
  clock_.Advance(milliseconds(200));
  budget_->Begin(Task::kSnapshot);
  pacer_.Begin();
  clock_.Wait(seconds(60));
  pacer_.Pause(CancelToken());
  budget_->End();
  EXPECT_EQ(clock_.slept().count(), 0);
  EXPECT_LE(rest_until(), clock_.Monotonic().count());
}

TEST_F(WorkBudgetTest, IsNicerWithoutASpareCore) {
  Make({});
  const auto nice = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  std::thread([&] {
    const int before = nice();
    budget_->Enter();
    clock_.Advance(milliseconds(200));
    budget_->Begin(Task::kSnapshot);
    constexpr int kNicest = 19;  // nothing is nicer, as under `nice -n 19 tests/run`
    EXPECT_GE(nice(), std::min(before + 1, kNicest));
    // Linux may refuse to leave idle priority.
    budget_->BeginFullSpeed();
    budget_->End();
    if (IdlePriorityCanBeLeft()) {
      EXPECT_EQ(nice(), before);
    }
  }).join();
}

// There the trainer's launches wait for locks that the monitor's thread may hold.
TEST_F(WorkBudgetTest, IsNoNicerOnTheGpuThatTrains) {
  Make({.cores = {.on_training_device = true}});
  const auto nice = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  std::thread([&] {
    const int before = nice();
    budget_->Enter();
    clock_.Advance(milliseconds(200));
    budget_->Begin(Task::kSnapshot);
    EXPECT_FALSE(budget_->spare());
    EXPECT_EQ(nice(), before);
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

TEST_F(WorkBudgetTest, IsAtFullSpeedWhileTrainingWaits) {
  Make({});
  budget_->Enter();
  clock_.Advance(milliseconds(200));
  budget_->Begin(Task::kSnapshot);
  budget_->BeginFullSpeed();
  EXPECT_EQ(rest_until(), 0);
  Work(seconds(10));
  EXPECT_EQ(clock_.slept().count(), 0);
  budget_->End();
  EXPECT_EQ(rest_until(), 0);
}

}  // namespace work_budget_test
}  // namespace ptqwatch::internal
