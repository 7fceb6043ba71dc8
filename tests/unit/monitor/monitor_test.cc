#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor_fixture.h"

namespace ptqwatch {
namespace monitor_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::Fault;
using ::testing::HasSubstr;
using testing::TinyTrainer;

TEST_F(MonitorTest, ReportsCarryTheStepAndMeasurements) {
  Create(Every(10));
  for (int64_t step = 1; step <= 40; ++step) trainer.Step();
  monitor->OnStep({.step = 40, .learning_rate = 1e-2, .tokens = 3200, .loss = 2.0});
  ASSERT_TRUE(recording->WaitForReports(1));
  const Report report = recording->Reports()[0]->report;
  EXPECT_EQ(report.step, 40);
  EXPECT_EQ(report.tokens, 3200);
  EXPECT_EQ(report.training_loss_nats, 2.0);
  EXPECT_EQ(report.probe_status, ProbeStatus::kOk);
  EXPECT_GT(*report.probe_loss_nats, 0);
  EXPECT_GT(report.probe_tokens, 0);
  ASSERT_EQ(report.quantization.size(), 2u);
  for (const QuantizationReport& result : report.quantization) {
    EXPECT_EQ(result.status, ProbeStatus::kOk) << result.status_detail;
    EXPECT_NEAR(*result.error_ratio, *result.delta_nats / (*result.loss_nats - *result.delta_nats),
                1e-9);
    EXPECT_GT(*result.delta_stderr_nats, 0);
    EXPECT_GT(*result.displacement_norm, 0);
    EXPECT_EQ(result.layers.size(), 3u);
    for (const LayerQuantization& layer : result.layers) {
      EXPECT_EQ(layer.status, LayerStatus::kOk);
      EXPECT_GT(*layer.output_error_ratio, 0);
      EXPECT_GT(*layer.rtn_output_error_ratio, 0);
    }
  }
  EXPECT_LT(*report.quantization[1].layers[1].output_error_ratio,
            *report.quantization[1].layers[1].rtn_output_error_ratio);
  EXPECT_EQ(*report.quantization[0].layers[1].output_error_ratio,
            *report.quantization[0].layers[1].rtn_output_error_ratio);
  EXPECT_EQ(monitor->latest(), recording->Reports()[0]);
}

TEST_F(MonitorTest, ReportsNameAFormatThatTheMethodDoesNotImply) {
  MonitorOptions options = Every(1);
  options.quantizers.clear();
  for (const char* name : {"rtn4", "rtn-mxfp4", "gptq-nvfp4", "gptq4-int-h16", "nf4"}) {
    options.quantizers.push_back(*ParseQuantizer(name));
  }
  Create(options);
  Step(1);
  ASSERT_TRUE(recording->WaitForReports(1));
  const AnalyzedReport analyzed = *recording->Reports()[0];
  std::vector<std::string> names;
  for (const QuantizationReport& entry : analyzed.report.quantization) {
    EXPECT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
    EXPECT_EQ(entry.scale_rule.has_value(), entry.format == "mxfp4");
    EXPECT_TRUE(analyzed.report.cost.contains(ShortName(KeyOf(entry))));
    names.push_back(ShortName(KeyOf(entry)));
    for (const LayerQuantization& layer : entry.layers) {
      const bool mx = entry.format == "mxfp4";
      EXPECT_EQ(layer.dead_zone_ratio.has_value(), mx);
      EXPECT_EQ(layer.scale_bias_ratio.has_value(), mx);
      ASSERT_EQ(layer.grid_noise_ratio.has_value(), mx);
      // The parts are shares of the weight's square; on standard normal weights they add up to 1.25
      // %.
      if (mx) {
        const double error =
            *layer.dead_zone_ratio + *layer.grid_noise_ratio + *layer.scale_bias_ratio;
        EXPECT_GT(*layer.grid_noise_ratio, 0);
        EXPECT_GT(error, 0.005);
        EXPECT_LT(error, 0.03);
      }
    }
  }
  EXPECT_THAT(names, ElementsAre("rtn4", "rtn-mxfp4", "gptq-nvfp4", "gptq4-int-h16", "nf4"));
  EXPECT_EQ(analyzed.report.quantization[0].format, std::nullopt);
  EXPECT_EQ(analyzed.report.quantization[1].scale_rule, "even");
  EXPECT_EQ(analyzed.report.quantization[1].group_size, 32);
  EXPECT_EQ(analyzed.report.quantization[2].group_size, 16);
  EXPECT_EQ(analyzed.report.quantization[3].format, "int-h16");
  EXPECT_EQ(analyzed.report.quantization[4].format, std::nullopt);
  EXPECT_EQ(analyzed.verdict.format, "nvfp4");
}

TEST_F(MonitorTest, EightBitsCostNextToNothing) {
  MonitorOptions options = Every(1);
  options.quantizers = {{.method = QuantizationMethod::kGptq, .bits = 2, .group_size = -1},
                        {.method = QuantizationMethod::kGptq, .bits = 8, .group_size = -1}};
  Create(options);
  for (int i = 0; i < 60; ++i) trainer.Step();
  Step(1);
  ASSERT_TRUE(recording->WaitForReports(1));
  const Report report = recording->Reports()[0]->report;
  EXPECT_LT(std::abs(*report.quantization[1].delta_nats), 1e-3);
  EXPECT_GT(*report.quantization[0].displacement_norm,
            20 * *report.quantization[1].displacement_norm);
}

TEST_F(MonitorTest, SequentialCalibrationIsReportedAndOfAnotherFingerprint) {
  std::map<CalibrationMode, Report> reports;
  for (const CalibrationMode mode : {CalibrationMode::kOneShot, CalibrationMode::kSequential}) {
    recording = std::make_shared<testing::Recording>();
    MonitorOptions options = Every(1);
    options.calibration_mode = mode;
    Create(options);
    monitor->OnStep({.step = 1, .learning_rate = 1e-2});
    ASSERT_TRUE(recording->WaitForReports(1));
    reports[mode] = recording->Reports()[0]->report;
    EXPECT_EQ(reports[mode].calibration_mode, mode);
    ASSERT_EQ(reports[mode].quantization.size(), 2u);
    EXPECT_EQ(reports[mode].quantization[1].status, ProbeStatus::kOk);
  }
  const Report& one_shot = reports[CalibrationMode::kOneShot];
  const Report& sequential = reports[CalibrationMode::kSequential];
  EXPECT_NE(one_shot.fingerprint, sequential.fingerprint);
  const QuantizationReport& rtn = sequential.quantization[0];
  EXPECT_EQ(one_shot.quantization[0].layers, rtn.layers);
  EXPECT_EQ(one_shot.quantization[0].delta_nats, rtn.delta_nats);
  const QuantizationReport& gptq = sequential.quantization[1];
  // Equal except for its share of the loss, which depends on the errors of all layers.
  EXPECT_EQ(one_shot.quantization[1].layers[0].output_error_ratio,
            gptq.layers[0].output_error_ratio);
  EXPECT_NE(one_shot.quantization[1].layers[1], gptq.layers[1]);
  EXPECT_NE(one_shot.quantization[1].delta_nats, gptq.delta_nats);
}

TEST_F(MonitorTest, SkipsAndCountsWhileTheSlotIsTaken) {
  Create(Every(1));
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();  // step 1 is loaded and being measured, so the slot is free again
  Step(2);
  Step(3);
  Step(4);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 2);
  EXPECT_EQ(Count(SnapshotResult::kSkippedBusy), 2);
  gate->Set(true);
  ASSERT_TRUE(recording->WaitForReports(2));
  EXPECT_EQ(recording->Reports()[1]->report.step, 2);
  bool announced = false;
  for (const Event& event : recording->Events()) {
    announced |= event.kind == Event::Kind::kSnapshotSkipped;
  }
  EXPECT_TRUE(announced);
}

TEST_F(MonitorTest, StopInTheMiddleOfASnapshotReturnsAndPublishesNothing) {
  Create(Every(1));
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = monitor->Stop(milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
  EXPECT_TRUE(monitor->Stop(milliseconds(200)).ok());  // idempotent
  monitor.reset();
  gate->Set(true);
  EXPECT_EQ(recording->Reports().size(), 0u);
}

TEST_F(MonitorTest, StopBetweenBatchesCancels) {
  Create(Every(1));
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  std::thread opener([gate = gate] { gate->Set(true); });
  EXPECT_TRUE(monitor->Stop(seconds(30)).ok());
  opener.join();
}

TEST_F(MonitorTest, TakesARequestedSnapshotAtOneOfTheNextSteps) {
  Create(Every(1000));
  Step(1);
  ASSERT_TRUE(monitor->control().Do(TakeSnapshot{}).ok());
  int64_t step = 1;
  while (Count(SnapshotResult::kTaken) == 0) Step(++step);
  ASSERT_TRUE(recording->WaitForReports(1));
  EXPECT_EQ(recording->Reports()[0]->report.step, step);
  EXPECT_EQ(recording->Reports()[0]->report.trigger, SnapshotTrigger::kRequest);
  Step(++step);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 1);
}

TEST_F(MonitorTest, PausesResumesAndChangesTheInterval) {
  Create(Every(1000));
  EXPECT_EQ(monitor->control().Do(SetEvery{0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(monitor->status().every, 1000);
  ASSERT_TRUE(monitor->control().Do(SetEvery{4}).ok());
  ASSERT_TRUE(monitor->control().Do(Pause{}).ok());
  while (monitor->status().every != 4 || !monitor->status().paused) std::this_thread::yield();
  Step(4);
  EXPECT_EQ(Count(SnapshotResult::kSkippedPaused), 1);
  ASSERT_TRUE(monitor->control().Do(Resume{}).ok());
  while (monitor->status().paused) std::this_thread::yield();
  Step(8);
  ASSERT_TRUE(recording->WaitForReports(1));
  EXPECT_EQ(recording->Reports()[0]->report.step, 8);
}

TEST_F(MonitorTest, CommandsAreCarriedOutWhileASnapshotIsMeasured) {
  Create(Every(1));
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  ASSERT_TRUE(monitor->control().Do(Pause{}).ok());
  // Every loss of the measurement passes the gate, so the report cannot come before the pause.
  while (!monitor->status().paused) gate->LetOneThrough();
  EXPECT_TRUE(recording->Reports().empty());
  gate->Set(true);
  ASSERT_TRUE(recording->WaitForReports(1));
  Step(2);
  EXPECT_EQ(Count(SnapshotResult::kSkippedPaused), 1);
}

TEST_F(MonitorTest, RaisesAnEventOfEveryKindItCounts) {
  Create(Every(1));
  Step(1);
  ASSERT_TRUE(recording->WaitForReports(1));
  ASSERT_TRUE(monitor->Stop(seconds(5)).ok());
  std::array<int64_t, kEventKinds> seen{};
  for (const Event& event : recording->Events()) ++seen[static_cast<size_t>(event.kind)];
  EXPECT_EQ(monitor->status().events, seen);
  EXPECT_EQ(recording->Events().back().kind, Event::Kind::kStopped);
  EXPECT_THAT(recording->Events().back().message, HasSubstr("after step 1"));
}

TEST_F(MonitorTest, NaNWeightsGiveAStatusAndNoNumbers) {
  Create(Every(1));
  trainer.Step();
  trainer.Poison();
  monitor->OnStep({.step = 1, .learning_rate = 1e-2, .loss = std::nan("")});
  ASSERT_TRUE(recording->WaitForReports(1));
  const Report report = recording->Reports()[0]->report;
  EXPECT_EQ(report.probe_status, ProbeStatus::kNonFinite);
  EXPECT_THAT(report.probe_status_detail, HasSubstr("blocks.1.weight"));
  EXPECT_FALSE(report.probe_loss_nats);
  for (const QuantizationReport& result : report.quantization) {
    EXPECT_EQ(result.status, ProbeStatus::kNonFinite);
    EXPECT_FALSE(result.delta_nats);
    EXPECT_FALSE(result.displacement_norm);
  }
  EXPECT_EQ(recording->Reports()[0]->verdict.state, VerdictState::kUnknown);
  EXPECT_EQ(monitor->status().health, Health::kDegraded);
}

TEST_F(MonitorTest, AClosureThatBeginsToThrowIsReportedAndThenSwitchedOff) {
  MonitorOptions options = Every(1);
  options.max_failures_in_a_row = 2;
  Create(options);
  gate->Set(true, /*throws=*/true);
  for (int64_t step = 1; step <= 3; ++step) {
    Step(step);
    ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(step)));
  }
  const auto reports = recording->Reports();
  EXPECT_EQ(reports[0]->report.probe_status, ProbeStatus::kFailed);
  EXPECT_THAT(reports[0]->report.probe_status_detail, HasSubstr("device-side assert"));
  EXPECT_EQ(reports[2]->report.probe_status, ProbeStatus::kDisabled);
  bool announced = false;
  for (const Event& event : recording->Events())
    announced |= event.kind == Event::Kind::kProbeDisabled;
  EXPECT_TRUE(announced);
  EXPECT_EQ(monitor->status().probe_failures_total, 2);
  Step(4);
  EXPECT_EQ(Count(SnapshotResult::kSkippedPaused), 1);  // no useless copies after that
}

TEST_F(MonitorTest, AParameterOfAnotherShapeIsASkippedSnapshot) {
  Create(Every(1));
  trainer.ReplaceParameter();
  monitor->OnStep({.step = 1, .learning_rate = 1e-2});
  EXPECT_EQ(Count(SnapshotResult::kSkippedMismatch), 1);
  ASSERT_TRUE(recording->WaitForEvents(1));  // even without a report
  EXPECT_EQ(recording->Events()[0].kind, Event::Kind::kSnapshotSkipped);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 0);
}

TEST_F(MonitorTest, ATimeCapEndsAProbeWithoutAValue) {
  MonitorOptions options = Every(1);
  options.max_snapshot_time = milliseconds(1);
  Create(options);
  gate->Set(false);
  Step(1);
  gate->AwaitCaller();
  const auto until = std::chrono::steady_clock::now() + milliseconds(5);
  while (std::chrono::steady_clock::now() < until) {
  }
  gate->Set(true);
  ASSERT_TRUE(recording->WaitForReports(1));
  const Report report = recording->Reports()[0]->report;
  for (const QuantizationReport& result : report.quantization) {
    EXPECT_EQ(result.status, ProbeStatus::kOutOfTime) << result.status_detail;
    EXPECT_FALSE(result.error_ratio);
  }
}

TEST_F(MonitorTest, FollowsLrCornersAcrossReports) {
  Create(Every(10));
  for (int64_t step = 1; step <= 10; ++step) {
    monitor->OnStep({.step = step, .learning_rate = 1e-2});
  }
  ASSERT_TRUE(recording->WaitForReports(1));
  for (int64_t step = 11; step <= 20; ++step) {
    monitor->OnStep({.step = step, .learning_rate = 1e-2 * static_cast<double>(25 - step) / 15});
  }
  ASSERT_TRUE(recording->WaitForReports(2));
  const auto reports = recording->Reports();
  EXPECT_EQ(reports[0]->report.lr_phase, LrPhase::kStable);
  EXPECT_EQ(reports[1]->report.lr_phase, LrPhase::kDecay);
  EXPECT_EQ(reports[1]->report.decay_onset_step, 11);
  ASSERT_EQ(reports[1]->report.lr_change_points.size(), 1u);
  EXPECT_EQ(reports[1]->report.lr_change_points[0].step, 10);
  EXPECT_EQ(reports[1]->report.probe_state_sequence, reports[0]->report.sequence);
}

std::vector<std::pair<int64_t, std::string>> Phases(testing::Recording& recording) {
  std::vector<std::pair<int64_t, std::string>> phases;
  for (const Event& event : recording.Events()) {
    if (event.kind == Event::Kind::kPhaseChange) phases.emplace_back(event.step, event.message);
  }
  return phases;
}

TEST_F(MonitorTest, AnnouncesAPhaseWhenTheRateTurns) {
  Create(Every(1000));
  for (int64_t step = 1; step <= 20; ++step) {
    monitor->OnStep({.step = step,
                     .learning_rate = step <= 10 ? 1e-2 : 1e-2 - 1e-4 * static_cast<double>(step)});
  }
  ASSERT_TRUE(recording->WaitForEvents(2)) << "no snapshot is due";
  const std::pair<int64_t, std::string> stable{2, "learning-rate phase unknown -> stable"};
  const std::pair<int64_t, std::string> decay{11, "learning-rate phase stable -> decay"};
  EXPECT_THAT(Phases(*recording), ElementsAre(stable, decay));
  EXPECT_EQ(recording->Reports().size(), 0u);
  ASSERT_TRUE(monitor->Finish(seconds(60)).ok());
  EXPECT_EQ(recording->Reports()[0]->report.lr_phase, LrPhase::kDecay);
  EXPECT_THAT(Phases(*recording), ElementsAre(stable, decay)) << "not again with the report";
}

TEST_F(MonitorTest, AnnouncesAPhaseWhileItMeasures) {
  Create(Every(10));
  gate->Set(false);
  for (int64_t step = 1; step <= 15; ++step) {
    monitor->OnStep({.step = step,
                     .learning_rate = step <= 12 ? 1e-2 : 1e-2 - 1e-4 * static_cast<double>(step)});
  }
  while (Phases(*recording).size() < 2 && recording->Reports().empty()) gate->LetOneThrough();
  ASSERT_EQ(Phases(*recording).size(), 2u);
  EXPECT_EQ(Phases(*recording)[1].first, 13);
  EXPECT_EQ(recording->Reports().size(), 0u);
  gate->Set(true);
  ASSERT_TRUE(recording->WaitForReports(1));
  EXPECT_EQ(recording->Reports()[0]->report.lr_phase, LrPhase::kStable);
  EXPECT_EQ(Phases(*recording).size(), 2u) << "the report is of a step before it";
}

TEST_F(MonitorTest, AnnouncesThePhaseAfterARollback) {
  Create(Every(1000));
  const auto rate = [](int64_t step) {
    return step <= 10 ? 1e-2 : 1e-2 - 1e-4 * static_cast<double>(step);
  };
  for (int64_t step = 1; step <= 15; ++step) {
    monitor->OnStep({.step = step, .learning_rate = rate(step)});
  }
  for (int64_t step = 5; step <= 15; ++step) {
    monitor->OnStep({.step = step, .learning_rate = rate(step)});
  }
  ASSERT_TRUE(recording->WaitForEvents(4));
  std::vector<int64_t> steps;
  for (const auto& [step, message] : Phases(*recording)) steps.push_back(step);
  EXPECT_THAT(steps, ElementsAre(2, 11, 6, 11));
}

TEST_F(MonitorTest, ReportsNameWhatTheyWereMeasuredWith) {
  Create(Every(10));
  for (int64_t step = 1; step <= 10; ++step) Step(step);
  ASSERT_TRUE(monitor->Finish(seconds(100)).ok());
  const std::optional<Plan> plan = recording->Reports()[0]->report.plan;
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->probe_batches, 0);
  EXPECT_GT(plan->calibration_batches, 0);
  EXPECT_GT(plan->curvature_sequences, 0);
  EXPECT_EQ(plan->curvature_every, 1);
  EXPECT_THAT(monitor->Describe(), HasSubstr("plan: probe "));
}

}  // namespace monitor_test
}  // namespace ptqwatch
