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

v1::GetStatusResponse Status() {
  v1::GetStatusResponse status;
  status.set_run_id("run-1");
  status.set_attempt(2);
  status.set_version("0.1.0");
  status.set_device("cpu");
  status.set_parameters(4000);
  status.set_covered_parameters(3500);
  status.set_health(v1::HEALTH_OK);
  status.set_step(16010);
  status.set_steps_total(16010);
  status.set_last_step_unix_seconds(1000);
  status.set_learning_rate(1e-3 / 3);
  status.set_lr_phase(v1::LR_PHASE_DECAY);
  status.set_training_loss_nats(1.61234);
  status.set_tokens(12345678);
  (*status.mutable_snapshots())["taken"] = 12;
  (*status.mutable_snapshots())["skipped_busy"] = 2;
  (*status.mutable_snapshots())["skipped_paused"] = 1;
  (*status.mutable_snapshots())["failed"] = 0;
  status.set_reports_total(12);
  status.set_last_sequence(12);
  status.set_overhead_ratio(0.0052);
  status.set_stall_seconds_total(0.0312);
  status.set_duty_cycle(0.5);
  status.set_subscribers(1);
  return status;
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
  v1::GetStatusResponse status = Status();
  EXPECT_EQ(StatusLine(status, 41.23, 32),
            "step 16010 | 41.2 steps/s | newest report 32 s old | ok | 3 skipped");
  status.set_busy(true);
  status.clear_snapshots();
  status.set_health(v1::HEALTH_DEGRADED);
  EXPECT_EQ(StatusLine(status, std::nullopt, std::nullopt), "step 16010 | degraded | busy");
}

TEST(StatusLine, SaysWhatIsNotThereYet) {
  EXPECT_EQ(StatusLine(v1::GetStatusResponse(), std::nullopt, std::nullopt),
            "no step yet | no report yet | unknown");
}

TEST(StatusBlock, HasALineForEachFact) {
  EXPECT_EQ(
      StatusBlock(Status(), 1041),
      "run        run-1, attempt 2, ptqwatch 0.1.0 on cpu\n"
      "health     ok\n"
      "step       16010, 41 s ago\n"
      "lr         3.33e-4, decay\n"
      "training   loss 1.6123 nats, 12345678 tokens\n"
      "model      4000 parameters, 87.5% in quantized layers\n"
      "snapshots  2 skipped_busy, 1 skipped_paused, 12 taken\n"
      "reports    12, the newest has sequence 12; 0 failed measurements, 0 dropped by exporters\n"
      "cost       0.0312 s of training time, overhead not measured yet (0 comparisons), duty cycle "
      "50%\n"
      "watchers   1\n");
}

TEST(OverheadText, SaysHowSureItIs) {
  v1::GetStatusResponse status;
  EXPECT_EQ(OverheadText(status), "");
  status.set_overhead_ratio(0.07);
  status.set_overhead_budget_ratio(0.02);
  status.set_overhead_comparisons(3);
  EXPECT_EQ(OverheadText(status), "not measured yet (3 comparisons) of 2.0% allowed");
  status.set_overhead_ratio(0.018);
  status.set_overhead_low_ratio(0.011);
  status.set_overhead_high_ratio(0.026);
  EXPECT_EQ(OverheadText(status), "1.8% (1.1 to 2.6%, 95%) of 2.0% allowed");
}

TEST(StatusBlock, SaysHowFarASliceIs) {
  v1::GetStatusResponse status = Status();
  v1::SliceStatus* slice = status.mutable_slice();
  slice->set_state(v1::SLICE_STATE_MEASURING);
  slice->set_method("nf4");
  slice->set_bits(4);
  slice->set_points_done(45);
  slice->set_points_all(444);
  EXPECT_THAT(StatusBlock(status, 1041),
              HasSubstr("\nslice      nf4: 45 of 444 points measured\n"));
  EXPECT_THAT(StatusLine(status, std::nullopt, std::nullopt), HasSubstr("slice nf4: 45 of 444"));
  slice->set_state(v1::SLICE_STATE_DONE);
  slice->set_path("a\x1b");
  EXPECT_THAT(StatusBlock(status, 1041), HasSubstr("\nslice      nf4: written to a"));
  EXPECT_THAT(StatusBlock(status, 1041), Not(HasSubstr("\x1b")));
  EXPECT_THAT(StatusJson(status).value(), HasSubstr("\"points_done\":45"));
}

TEST(StatusBlock, SaysHowOftenSnapshotsAreTakenAndWhetherTheyArePaused) {
  v1::GetStatusResponse status;
  status.set_every_steps(500);
  EXPECT_THAT(StatusBlock(status, 0), HasSubstr("snapshots  none yet; one every 500 steps\n"));
  status.set_paused(true);
  EXPECT_THAT(StatusBlock(status, 0), HasSubstr("; one every 500 steps; paused\n"));
  EXPECT_THAT(StatusLine(status, std::nullopt, std::nullopt), HasSubstr(" | paused"));
}

TEST(StatusBlock, TakesAnEmptyStatus) {
  const std::string text = StatusBlock(v1::GetStatusResponse(), 0);
  EXPECT_THAT(text, HasSubstr("step       none yet\n"));
  EXPECT_THAT(text, HasSubstr("snapshots  none yet\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(StatusBlock, CannotMoveTheCursor) {
  v1::GetStatusResponse status = Status();
  status.set_run_id("evil\x1b[2J");
  status.set_device("\r");
  (*status.mutable_snapshots())["\n"] = 1;
  EXPECT_THAT(StatusBlock(status, 0), Not(HasSubstr("\x1b")));
  EXPECT_THAT(StatusBlock(status, 0), Not(HasSubstr("\r")));
}

TEST(HealthText, KnowsAllAndSurvivesOthers) {
  EXPECT_EQ(HealthText(v1::HEALTH_STARTING), "starting");
  EXPECT_EQ(HealthText(v1::HEALTH_STOPPED), "stopped");
  EXPECT_EQ(HealthText(static_cast<v1::Health>(99)), "unknown");
}

}  // namespace status_text_test
}  // namespace ptqwatch::internal
