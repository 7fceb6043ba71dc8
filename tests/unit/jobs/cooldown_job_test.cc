#include "jobs/cooldown_job.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/shadow_cooldown.h"
#include "support/eventually.h"
#include "support/fake_clock.h"
#include "support/recording_exporter.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace cooldown_job_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::TinyTrainer;

constexpr double kRate = 1e-2;

class CooldownTest : public ::testing::Test {
 protected:
  CooldownTest() {
    SetLogSink(Severity::kError, nullptr);
    at::set_num_threads(1);
  }

  static MonitorOptions Options() {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.schedule.every = 1;
    options.duty_cycle = 1.0;
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8}};
    options.curvature.enabled = false;
    options.averaging.enabled = false;
    options.cooldown.decay_steps = 32;
    options.cooldown.settle_steps = 4;
    return options;
  }
  void Create(const MonitorOptions& options, testing::Fault fault = testing::Fault::kNone) {
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording_));
    auto created = Monitor::Create(trainer_.MakeSubject(fault), options, std::move(exporters));
    ASSERT_TRUE(created.ok()) << created.status();
    monitor_ = *std::move(created);
  }
  // A training step, and its report.
  void Step(int64_t step) {
    trainer_.Step();
    monitor_->OnStep({.step = step, .learning_rate = kRate, .phase = LrPhase::kStable});
    ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  }
  CooldownStatus Cooldown() const { return monitor_->status().cooldown; }
  bool Ended() const {
    return Eventually([this] { return !Cooldown().under_way(); });
  }
  std::vector<std::string> CooldownEvents() {
    std::vector<std::string> messages;
    for (const Event& event : recording_->Events()) {
      if (event.kind == Event::Kind::kCooldown) messages.push_back(event.message);
    }
    return messages;
  }
  const Report& Newest() { return (newest_ = monitor_->latest())->report; }

  TinyTrainer trainer_;
  std::shared_ptr<testing::Recording> recording_ = std::make_shared<testing::Recording>();
  std::unique_ptr<Monitor> monitor_;
  std::shared_ptr<const AnalyzedReport> newest_;
};

// Trained at a rate of 0, the copy would end where it began: a prediction of no change.
TEST_F(CooldownTest, NeedsALearningRate) {
  MonitorOptions options = Options();
  options.cooldown.every_snapshots = 1;
  Create(options);
  trainer_.Step();
  monitor_->OnStep({.step = 1, .learning_rate = 0, .phase = LrPhase::kStable});
  ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Cooldown().state, CooldownState::kFailed);
  EXPECT_EQ(Cooldown().error, "the learning rate of step 1 is 0, so there is nothing to decay");
}

TEST_F(CooldownTest, IsMadeOnRequestAndInEveryReportAfterIt) {
  Create(Options());
  Step(1);
  ASSERT_EQ(monitor_->control().Do(StartCooldown{}).value(), 1);
  EXPECT_FALSE(Newest().predicted_end);
  Step(2);
  ASSERT_TRUE(Ended());
  ASSERT_EQ(Cooldown().state, CooldownState::kDone) << Cooldown().error;
  EXPECT_EQ(Cooldown().step, 2);
  EXPECT_EQ(Cooldown().steps_done, Cooldown().steps_all);
  for (int64_t step = 3; step <= 4; ++step) {
    Step(step);
    ASSERT_TRUE(Newest().predicted_end);
    const PredictedEnd& end = *Newest().predicted_end;
    EXPECT_EQ(end.status, ProbeStatus::kOk) << end.status_detail;
    EXPECT_EQ(end.step, 2);
    EXPECT_EQ(end.learning_rate, kRate);
    EXPECT_EQ(end.decay_steps, 32);
    EXPECT_EQ(end.simulated_steps, (4 + 4) + (4 + 8) + (4 + 16));
    ASSERT_EQ(end.decays.size(), 3u);
    EXPECT_EQ(end.decays[2].steps, 16);
    ASSERT_EQ(end.quantization.size(), 1u);
    EXPECT_GT(*end.quantization[0].error_ratio, 0);
    EXPECT_LT(*end.quantization[0].error_low_ratio, *end.quantization[0].error_ratio);
    EXPECT_GT(*end.quantization[0].error_high_ratio, *end.quantization[0].error_ratio);
    EXPECT_GT(*end.loss_nats, 0);
  }
  EXPECT_THAT(CooldownEvents(),
              ElementsAre(HasSubstr("from step 2: simulating 40 steps for a linear decay of 32"),
                          AllOf(HasSubstr("rtn3 error would end at"), HasSubstr("loss"))));
}

TEST_F(CooldownTest, ChangesNoWeightOfTheRunThoughItDrawsRandomNumbers) {
  std::string weights[2];
  for (const bool with : {false, true}) {
    trainer_ = TinyTrainer(/*seed=*/5);
    Create(Options());
    for (int64_t step = 1; step <= 6; ++step) {
      const bool asked = with && step == 2;
      ASSERT_TRUE(!asked || monitor_->control().Do(StartCooldown{}).ok());
      Step(step);  // with dropout, from the default generator
      ASSERT_TRUE(!asked || Ended());
    }
    EXPECT_EQ(Cooldown().state, with ? CooldownState::kDone : CooldownState::kNone);
    weights[with] = trainer_.Bytes();
    monitor_.reset();
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(CooldownTest, StopsForSnapshotsWithoutAnyEffectOnEither) {
  // Holds the simulation at its tenth step until a later snapshot is there.
  std::atomic<int> steps{0};
  std::atomic<bool> go_on{false};
  trainer_.OnTrainStep([&](const CooldownStep&) {
    if (++steps == 10) Eventually([&] { return go_on.load(); });
  });
  MonitorOptions options = Options();
  options.adapt_plan = false;
  Create(options);
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  const double loss = *Newest().probe_loss_nats;
  ASSERT_TRUE(Eventually([&] { return steps == 10; }));
  monitor_->OnStep({.step = 2, .learning_rate = kRate});  // the same weights
  go_on = true;
  ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  EXPECT_EQ(*Newest().probe_loss_nats, loss);
  EXPECT_EQ(*Newest().quantization[0].loss_nats,
            *recording_->Reports()[0]->report.quantization[0].loss_nats);
  ASSERT_TRUE(Ended());
  ASSERT_EQ(Cooldown().state, CooldownState::kDone) << Cooldown().error;
  Step(3);
  const PredictedEnd& interrupted = *Newest().predicted_end;

  // The same cooldown offline, in one piece.
  TinyTrainer other;
  other.Step();
  ShadowCooldownOptions offline;
  offline.cooldown = options.cooldown;
  offline.learning_rate = kRate;
  offline.step = 1;
  offline.quantizers = options.quantizers;
  const auto whole = RunShadowCooldown(*other.MakeSubject(), offline);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->decays.size(), interrupted.decays.size());
  for (size_t i = 0; i < whole->decays.size(); ++i) {
    EXPECT_EQ(whole->decays[i].loss_nats, interrupted.decays[i].loss_nats);
    EXPECT_EQ(whole->decays[i].quantization, interrupted.decays[i].quantization);
  }
  EXPECT_EQ(whole->quantization, interrupted.quantization);
}

TEST_F(CooldownTest, ComesOnScheduleWhileTheRateIsHigh) {
  MonitorOptions options = Options();
  options.cooldown.every_snapshots = 2;
  Create(options);
  for (int64_t step = 1; step <= 4; ++step) {
    Step(step);
    ASSERT_TRUE(Ended());
    EXPECT_EQ(Cooldown().number, step / 2) << step;
  }
  for (int64_t step = 5; step <= 8; ++step) {
    trainer_.Step();
    monitor_->OnStep({.step = step, .learning_rate = kRate / 2, .phase = LrPhase::kDecay});
    ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  }
  EXPECT_EQ(Cooldown().number, 2);
}

TEST_F(CooldownTest, MeasuresTheTraceIfCurvatureIsMeasured) {
  MonitorOptions options = Options();
  options.curvature.enabled = true;
  options.curvature.trace_relative_stderr = 10;
  options.curvature.eigenvalue_residual_ratio = 0.5;
  options.cooldown.lengths = {0.5};
  Create(options);
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Ended());
  Step(2);
  ASSERT_TRUE(Newest().predicted_end);
  const PredictedEnd& end = *Newest().predicted_end;
  ASSERT_EQ(end.decays.size(), 1u);
  EXPECT_TRUE(end.decays[0].trace) << end.decays[0].status_detail;
  EXPECT_TRUE(end.trace);
  EXPECT_EQ(Newest().curvature->status, ProbeStatus::kOk);
}

TEST_F(CooldownTest, IsCancelledByACommandAndMayBeAskedForAgain) {
  std::atomic<bool> reached{false};
  std::atomic<bool> go_on{false};
  trainer_.OnTrainStep([&](const CooldownStep&) {
    reached = true;
    Eventually([&] { return go_on.load(); });
  });
  Create(Options());
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Eventually([&] { return reached.load(); }));
  EXPECT_TRUE(monitor_->control().Do(CancelCooldown{}).ok());
  go_on = true;
  EXPECT_EQ(Cooldown().error, "cancelled by a command");
  Step(2);
  EXPECT_FALSE(Newest().predicted_end);
  ASSERT_EQ(monitor_->control().Do(StartCooldown{}).value(), 2);
  Step(3);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Cooldown().state, CooldownState::kDone) << Cooldown().error;
}

TEST_F(CooldownTest, StopEndsItBetweenTwoSteps) {
  std::atomic<int> steps{0};
  trainer_.OnTrainStep([&](const CooldownStep&) { ++steps; });
  MonitorOptions options = Options();
  options.cooldown.decay_steps = 100'000'000;
  Create(options);
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Eventually([&] { return steps > 2; }));
  EXPECT_TRUE(monitor_->Stop(seconds(20)).ok());
  EXPECT_EQ(Cooldown().state, CooldownState::kFailed);
  EXPECT_EQ(Cooldown().error, "the monitor was stopped");
}

TEST_F(CooldownTest, ATrainStepThatThrowsFailsItAlone) {
  trainer_.OnTrainStep([](const CooldownStep& step) {
    if (step.index == 3) throw std::runtime_error("no such batch");
  });
  Create(Options());
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Cooldown().state, CooldownState::kFailed);
  EXPECT_THAT(Cooldown().error, HasSubstr("train_step: no such batch"));
  Step(2);
  EXPECT_EQ(Newest().probe_status, ProbeStatus::kOk);
  ASSERT_TRUE(Newest().predicted_end);
  EXPECT_EQ(Newest().predicted_end->status, ProbeStatus::kFailed);
  EXPECT_EQ(monitor_->status().health, Health::kOk);
}

TEST_F(CooldownTest, IsRefusedWithoutATrainStep) {
  Create(Options(), testing::Fault::kNoTrainStep);
  const auto number = monitor_->control().Do(StartCooldown{});
  EXPECT_EQ(number.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(number.status().message()), HasSubstr("train_step is not set"));
  Step(1);
  EXPECT_EQ(Newest().probe_status, ProbeStatus::kOk);
}

TEST_F(CooldownTest, NeedsALength) {
  MonitorOptions options = Options();
  options.cooldown.decay_steps = 0;
  Create(options);
  const auto refusal = [&](int64_t decay_steps) {
    return monitor_->control().Do(StartCooldown{decay_steps}).status().ToString();
  };
  EXPECT_THAT(refusal(0), AllOf(HasSubstr("INVALID_ARGUMENT"),
                                HasSubstr("MonitorOptions.cooldown.decay_steps")));
  EXPECT_THAT(refusal(-3), AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("decay_steps = -3")));
  EXPECT_TRUE(monitor_->control().Do(StartCooldown{16}).ok());
  EXPECT_EQ(Cooldown().decay_steps, 16);
}

TEST_F(CooldownTest, SaysThatItDoesNotFitIntoMemory) {
  TinyTrainer wide(/*seed=*/1, /*width=*/256);
  trainer_ = wide;
  MonitorOptions options = Options();
  Create(options);
  const int64_t held = monitor_->status().memory_bytes;
  monitor_.reset();
  recording_ = std::make_shared<testing::Recording>();
  options.max_bytes = held + (int64_t{2} << 20);  // a snapshot's work, and not five models
  Create(options);
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Cooldown().state, CooldownState::kFailed);
  EXPECT_THAT(Cooldown().error, HasSubstr("shadow cooldown"));
  EXPECT_LE(monitor_->status().memory_peak_bytes, options.max_bytes);
}

TEST_F(CooldownTest, KeepsWhatItHasAtItsTimeLimit) {
  testing::FakeClock clock;
  trainer_.OnTrainStep([&](const CooldownStep& step) {
    if (step.steps > 4 + 4) clock.Advance(seconds(2));  // from the second length on
  });
  MonitorOptions options = Options();
  options.clock = &clock;
  options.cooldown.max_time = seconds(1);
  Create(options);
  ASSERT_TRUE(monitor_->control().Do(StartCooldown{}).ok());
  Step(1);
  ASSERT_TRUE(Ended());
  EXPECT_EQ(Cooldown().state, CooldownState::kDone) << Cooldown().error;
  Step(2);
  ASSERT_TRUE(Newest().predicted_end);
  const PredictedEnd& kept = *Newest().predicted_end;
  EXPECT_EQ(kept.status, ProbeStatus::kOk);
  EXPECT_THAT(kept.status_detail, HasSubstr("max_time was over after 1 of 3 lengths"));
  EXPECT_EQ(kept.decays.size(), 1u);
  monitor_.reset();  // before its clock
}

}  // namespace cooldown_job_test
}  // namespace ptqwatch
