#include "status_text.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace status_text_test {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

RunStatus Status() {
  RunStatus run;
  run.run = {.run_id = "run-1",
             .attempt = 2,
             .fingerprint = "",
             .run_dir = "",
             .parameters = 4000,
             .covered_parameters = 3500,
             .device = "cpu",
             .optimizer = OptimizerKind::kAdamW};
  run.version = "0.1.0";
  run.subscribers = 1;
  MonitorStatus& status = run.monitor;
  status.health = Health::kOk;
  status.step = 16010;
  status.last_step_unix_seconds = 1000;
  status.learning_rate = 1e-3 / 3;
  status.lr_phase = LrPhase::kDecay;
  status.training_loss_nats = 1.61234;
  status.tokens = 12345678;
  status.snapshots[static_cast<size_t>(SnapshotResult::kTaken)] = 12;
  status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedBusy)] = 2;
  status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedPaused)] = 1;
  status.reports_total = 12;
  status.last_sequence = 12;
  status.overhead_ratio = 0.0052;
  status.stall_seconds_total = 0.0312;
  status.duty_cycle = 0.5;
  return run;
}

TEST(StepRate, NeedsTwoObservations) {
  StepRate rate;
  EXPECT_FALSE(rate.PerSecond().has_value());
  rate.Add(seconds(1), 100);
  EXPECT_FALSE(rate.PerSecond().has_value());
  rate.Add(seconds(3), 150);
  EXPECT_EQ(rate.PerSecond(), 25);
}

TEST(StepRate, LooksAtTheLastTenAndForgetsAnOlderRun) {
  StepRate rate;
  for (int i = 0; i < 30; ++i) rate.Add(seconds(i), i < 20 ? 0 : 10 * (i - 19));
  EXPECT_EQ(rate.PerSecond(), 10);
  rate.Add(seconds(40), 3);
  EXPECT_FALSE(rate.PerSecond().has_value());
  rate.Add(seconds(40), 4);  // no time between them
  EXPECT_FALSE(rate.PerSecond().has_value());
}

TEST(StatusLine, SaysWhatARunIsDoing) {
  MonitorStatus status = Status().monitor;
  EXPECT_EQ(StatusLine(status, 41.23, 32),
            "step 16010 | 41.2 steps/s | newest report 32 s old | ok | 3 skipped");
  status.busy = true;
  status.snapshots = {};
  status.health = Health::kDegraded;
  EXPECT_EQ(StatusLine(status, std::nullopt, std::nullopt), "step 16010 | degraded | busy");
}

TEST(StatusLine, SaysWhatIsNotThereYet) {
  EXPECT_EQ(StatusLine(MonitorStatus(), std::nullopt, std::nullopt),
            "no step yet | no report yet | starting");
}

TEST(StatusBlock, HasALineForEachFact) {
  EXPECT_EQ(
      StatusBlock(Status(), 1041),
      "run        run-1, attempt 2, ptqwatch 0.1.0 on cpu\n"
      "health     ok\n"
      "step       16010, 41 s ago\n"
      "lr         3.33e-4, decay\n"
      "training   loss 1.6123 nats, 12345678 tokens\n"
      "model      4000 parameters, 87.5% in quantized layers, trained by adamw\n"
      "snapshots  12 taken, 2 skipped_busy, 1 skipped_paused\n"
      "reports    12, the newest has sequence 12; 0 failed measurements, 0 dropped by exporters\n"
      "cost       0.0312 s of training time, overhead not measured yet (0 comparisons), duty cycle "
      "50%\n"
      "watchers   1\n");
}

TEST(OverheadText, SaysHowSureItIs) {
  MonitorStatus status;
  EXPECT_EQ(OverheadText(status), "");
  status.overhead_ratio = 0.07;
  status.overhead_budget_ratio = 0.02;
  status.overhead_comparisons = 3;
  EXPECT_EQ(OverheadText(status), "not measured yet (3 comparisons) of 2.0% allowed");
  status.overhead_ratio = 0.018;
  status.overhead_low_ratio = 0.011;
  status.overhead_high_ratio = 0.026;
  EXPECT_EQ(OverheadText(status), "1.8% (1.1 to 2.6%, 95%) of 2.0% allowed");
}

TEST(StatusBlock, EndsWithEveryOtherMemberThatIsSet) {
  RunStatus status = Status();
  status.run.fingerprint = "f00d\x1b";
  status.monitor.events[static_cast<size_t>(Event::Kind::kAlert)] = 2;
  status.monitor.dropped_reports = {{"grpc", "slow", 3}};
  const std::string text = StatusBlock(status, 1041);
  EXPECT_THAT(text, HasSubstr("fingerprint f00d?\n"));
  EXPECT_THAT(text, HasSubstr("events     2 alert\n"));
  EXPECT_THAT(text, HasSubstr("dropped_reports 3 grpc slow\n"));
}

TEST(StatusBlock, SaysWhetherReplicasDiffer) {
  RunStatus status = Status();
  ReplicaStatus& replicas = status.monitor.replicas;
  EXPECT_THAT(StatusBlock(status, 1041), Not(HasSubstr("replicas")));
  replicas.compared_step = 300;
  EXPECT_THAT(StatusBlock(status, 1041), HasSubstr("\nreplicas   equal at step 300\n"));
  replicas = {.compared_step = 300,
              .diverged = true,
              .diverged_step = 200,
              .parameter = "head\x1b",
              .minority = "2"};
  EXPECT_THAT(StatusBlock(status, 1041),
              HasSubstr("\nreplicas   differ since step 200, last compared at step 300, rank 2 "
                        "unlike most, first in 'head?'\n"));
  EXPECT_THAT(StatusLine(status.monitor, std::nullopt, std::nullopt),
              HasSubstr(" | ok | replicas differ | "));
  replicas.minority.clear();
  EXPECT_THAT(ReplicasText(replicas), HasSubstr("step 300, without a majority, first in 'head?'"));
}

TEST(StatusBlock, SaysHowFarASliceIs) {
  RunStatus status = Status();
  SliceStatus& slice = status.monitor.slice;
  slice.state = SliceState::kMeasuring;
  slice.request.method = QuantizationMethod::kNf4;
  slice.request.bits = 4;
  slice.points_done = 45;
  slice.points_all = 444;
  EXPECT_THAT(StatusBlock(status, 1041),
              HasSubstr("\nslice      nf4: 45 of 444 points measured\n"));
  EXPECT_THAT(StatusLine(status.monitor, std::nullopt, std::nullopt),
              HasSubstr("slice nf4: 45 of 444"));
  slice.state = SliceState::kDone;
  slice.path = "a\x1b";
  EXPECT_THAT(StatusBlock(status, 1041), HasSubstr("\nslice      nf4: written to a"));
  EXPECT_THAT(StatusBlock(status, 1041), Not(HasSubstr("\x1b")));
}

TEST(StatusBlock, SaysHowOftenSnapshotsAreTakenAndWhetherTheyArePaused) {
  RunStatus status;
  status.monitor.every = 500;
  EXPECT_THAT(StatusBlock(status, 0), HasSubstr("snapshots  none yet; one every 500 steps\n"));
  status.monitor.paused = true;
  EXPECT_THAT(StatusBlock(status, 0), HasSubstr("; one every 500 steps; paused\n"));
  EXPECT_THAT(StatusLine(status.monitor, std::nullopt, std::nullopt), HasSubstr(" | paused"));
}

TEST(StatusBlock, TakesAnEmptyStatus) {
  const std::string text = StatusBlock(RunStatus(), 0);
  EXPECT_THAT(text, HasSubstr("step       none yet\n"));
  EXPECT_THAT(text, HasSubstr("snapshots  none yet\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(StatusBlock, CannotMoveTheCursor) {
  RunStatus status = Status();
  status.run.run_id = "evil\x1b[2J";
  status.run.device = "\r";
  EXPECT_THAT(StatusBlock(status, 0), Not(HasSubstr("\x1b")));
  EXPECT_THAT(StatusBlock(status, 0), Not(HasSubstr("\r")));
}

}  // namespace status_text_test
}  // namespace ptqwatch::internal
