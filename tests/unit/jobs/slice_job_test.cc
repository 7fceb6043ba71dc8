#include "jobs/slice_job.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "ATen/Parallel.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "support/fake_clock.h"
#include "support/recording_exporter.h"
#include "support/temp_dir.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace slice_job_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyTrainer;

MakeSlice Gptq3(int points = 3) {
  return {.method = QuantizationMethod::kGptq, .bits = 3, .points = points};
}

class SliceTest : public ::testing::Test {
 protected:
  SliceTest() {
    SetLogSink(Severity::kError, nullptr);
    at::set_num_threads(1);
  }

  MonitorOptions Options() {
    MonitorOptions options;
    options.on_failure = OnFailure::kError;
    options.schedule.every = 1;
    options.duty_cycle = 1.0;
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
    options.run_dir = directory_.path();
    options.run_id = "run-1";
    // Rough reports are quick ones.
    options.curvature.eigenvalue_residual_ratio = 0.5;
    options.curvature.trace_relative_stderr = 10;
    return options;
  }
  void Create(const MonitorOptions& options, std::function<void()> before_losses = nullptr) {
    monitor_.reset();  // one monitor a run directory
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording_));
    auto created =
        Monitor::Create(trainer_.MakeSubject(testing::Fault::kNone, std::move(before_losses)),
                        options, std::move(exporters));
    ASSERT_TRUE(created.ok()) << created.status();
    monitor_ = *std::move(created);
  }
  // A training step and its report, and the slice if it is due.
  void Step(int64_t step) {
    trainer_.Step();
    monitor_->OnStep({.step = step, .learning_rate = 1e-2});
    ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  }
  SliceStatus Slice() const { return monitor_->status().slice; }
  std::vector<std::string> SliceEvents() {
    std::vector<std::string> messages;
    for (const Event& event : recording_->Events()) {
      if (event.kind == Event::Kind::kSlice) messages.push_back(event.message);
    }
    return messages;
  }

  testing::TempDir directory_;
  TinyTrainer trainer_;
  std::shared_ptr<testing::Recording> recording_ = std::make_shared<testing::Recording>();
  std::unique_ptr<Monitor> monitor_;
};

TEST_F(SliceTest, IsMadeOfTheTwoSnapshotsAfterTheRequest) {
  Create(Options());
  Step(1);
  EXPECT_EQ(Slice().state, SliceState::kNone);
  ASSERT_EQ(monitor_->control().Do(Gptq3(4)).value(), 1);
  EXPECT_EQ(Slice().state, SliceState::kWaitingForFirst);
  Step(2);
  EXPECT_EQ(Slice().state, SliceState::kWaitingForSecond);
  Step(3);
  const SliceStatus status = Slice();
  ASSERT_EQ(status.state, SliceState::kDone) << status.error;
  EXPECT_EQ(status.points_done, 4 * 4 + 3);
  EXPECT_EQ(status.points_all, 4 * 4 + 3);
  EXPECT_EQ(status.path, directory_.File("slice-3.json"));
  EXPECT_THAT(SliceEvents(), ElementsAre(AllOf(HasSubstr("steps 2 and 3"), HasSubstr("gptq3")),
                                         HasSubstr("slice-3.json")));

  const auto json = nlohmann::json::parse(testing::ReadFile(status.path));
  EXPECT_EQ(json["run_id"], "run-1");
  EXPECT_EQ(json["previous_step"], 2);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["method"], "gptq");
  EXPECT_EQ(json["bits"], 3);
  EXPECT_EQ(json["group_size"], 8);
  EXPECT_EQ(json["loss_evaluations"], 4 * 4 + 4);
  EXPECT_EQ(json["loss_nats"].size(), 4u);
  EXPECT_EQ(json["loss_nats"][3].size(), 4u);

  // The reports have the losses of the three points, on the same batch.
  const auto reports = recording_->Reports();
  const Report& previous = reports[1]->report;
  const Report& current = reports[2]->report;
  EXPECT_EQ(json["batch_tokens"], current.curvature->batch_tokens);
  EXPECT_NEAR(json["current"]["loss_nats"], *current.curvature->loss_nats, 1e-6);
  EXPECT_NEAR(json["previous"]["loss_nats"], *previous.curvature->loss_nats, 1e-6);
  const double delta =
      json["quantized"]["loss_nats"].get<double>() - json["current"]["loss_nats"].get<double>();
  EXPECT_NEAR(delta, *current.quantization[1].curvature_batch_delta_nats, 1e-6);
  EXPECT_GT(std::abs(delta), 1e-5);
  const double distance =
      std::hypot(json["quantized"]["x"].get<double>(), json["quantized"]["y"].get<double>()) *
      json["weight_norm"].get<double>();
  EXPECT_NEAR(distance / *current.quantization[1].displacement_norm, 1, 1e-4);
}

TEST_F(SliceTest, ChangesNoReportAndNoWeight) {
  testing::FakeClock clock;  // stands still, so reports have the same times
  std::vector<std::string> reports[2];
  std::string weights[2];
  for (const bool with : {false, true}) {
    TinyTrainer trainer(/*seed=*/5);
    auto recording = std::make_shared<testing::Recording>();
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    MonitorOptions options = Options();
    options.clock = &clock;
    options.adapt_plan = false;  // depends on the machine
    // Each with a run of its own: nothing is handed on.
    const testing::TempDir own;
    options.run_dir = own.path();
    auto monitor = Monitor::Create(trainer.MakeSubject(), options, std::move(exporters));
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    for (int64_t step = 1; step <= 4; ++step) {
      if (with && step == 2) {
        ASSERT_TRUE((*monitor)->control().Do(Gptq3()).ok());
      }
      trainer.Step();
      (*monitor)->OnStep({.step = step, .learning_rate = 1e-2});
      ASSERT_TRUE((*monitor)->Finish(seconds(60)).ok());
    }
    EXPECT_EQ((*monitor)->status().slice.state, with ? SliceState::kDone : SliceState::kNone);
    for (const auto& report : recording->Reports()) {
      auto json = nlohmann::json::parse(ToJson(*report));
      json.erase("cost");
      reports[with].push_back(json.dump());
    }
    weights[with] = trainer.Bytes();
  }
  ASSERT_EQ(reports[0].size(), 4u);
  EXPECT_EQ(reports[0], reports[1]);
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(SliceTest, CanBeAskedForAgain) {
  Create(Options());
  for (int64_t number : {1, 2}) {
    ASSERT_EQ(monitor_->control().Do(Gptq3(2)).value(), number);
    EXPECT_EQ(monitor_->control().Do(Gptq3(2)).status().code(),
              absl::StatusCode::kFailedPrecondition);
    Step(10 * number + 1);
    Step(10 * number + 2);
    EXPECT_EQ(Slice().state, SliceState::kDone) << Slice().error;
    EXPECT_TRUE(std::filesystem::exists(
        directory_.File("slice-" + std::to_string(10 * number + 2) + ".json")));
  }
}

TEST_F(SliceTest, CanBeOfAStepToComeAndTheNewestSnapshotBefore) {
  Create(Options());
  MakeSlice request = Gptq3(2);
  request.at_step = 15;
  ASSERT_TRUE(monitor_->control().Do(request).ok());
  for (const int64_t step : {1, 7, 12}) {
    Step(step);
    EXPECT_EQ(Slice().state, SliceState::kWaitingForSecond);
  }
  Step(16);
  ASSERT_EQ(Slice().state, SliceState::kDone) << Slice().error;
  const auto json = nlohmann::json::parse(testing::ReadFile(Slice().path));
  EXPECT_EQ(json["previous_step"], 12);
  EXPECT_EQ(json["step"], 16);
  EXPECT_NEAR(json["previous"]["loss_nats"], *recording_->Reports()[2]->report.curvature->loss_nats,
              1e-6);
}

TEST_F(SliceTest, IsRefusedIfItCannotBeMade) {
  const auto refusal = [&](const MonitorOptions& options, const MakeSlice& request) {
    Create(options);
    const auto number = monitor_->control().Do(request);
    EXPECT_FALSE(number.ok());
    return number.status().ToString();
  };
  EXPECT_THAT(refusal(Options(), {.method = QuantizationMethod::kAwq, .bits = 4}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("this run has rtn 4, gptq 3")));
  MonitorOptions other = Options();
  other.quantizers.push_back(*ParseQuantizer("gptq-mxfp4"));
  EXPECT_THAT(refusal(other, {.method = QuantizationMethod::kGptq, .bits = 4}),
              HasSubstr("bits = 4: this run has rtn 4, gptq 3, gptq 4 mxfp4"));
  MakeSlice nvfp4 = Gptq3();
  nvfp4.format = "nvfp4";
  EXPECT_THAT(refusal(Options(), nvfp4), HasSubstr("format = 'nvfp4': this run has"));
  for (const int points : {-5, 0, 1, 102}) {
    EXPECT_THAT(refusal(Options(), Gptq3(points)),
                AllOf(HasSubstr("INVALID_ARGUMENT"),
                      HasSubstr("points = " + std::to_string(points) + ": must be from 2 to 101")));
  }
  MonitorOptions options = Options();
  options.run_dir.clear();
  EXPECT_THAT(refusal(options, Gptq3()),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("MonitorOptions.run_dir")));
  options = Options();
  options.curvature.enabled = false;
  EXPECT_THAT(refusal(options, Gptq3()),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("curvature.enabled is false")));
}

TEST_F(SliceTest, FailsWithTheSnapshot) {
  Create(Options());
  ASSERT_TRUE(monitor_->control().Do(Gptq3()).ok());
  Step(1);
  trainer_.Poison();
  monitor_->OnStep({.step = 2, .learning_rate = 1e-2});
  ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  EXPECT_EQ(Slice().state, SliceState::kFailed);
  EXPECT_THAT(Slice().error, HasSubstr("step 2 was not measured"));
  EXPECT_THAT(SliceEvents(), ElementsAre(HasSubstr("gptq3 failed: ")));
}

TEST_F(SliceTest, FailsIfTheWeightsDidNotMove) {
  Create(Options());
  ASSERT_TRUE(monitor_->control().Do(Gptq3()).ok());
  Step(1);
  monitor_->OnStep({.step = 2, .learning_rate = 1e-2});
  ASSERT_TRUE(monitor_->Finish(seconds(60)).ok());
  EXPECT_THAT(Slice().error, HasSubstr("those of the previous snapshot"));
  EXPECT_EQ(recording_->Reports().size(), 2u);
}

TEST_F(SliceTest, FailsIfItsFileCannotBeWritten) {
  Create(Options());
  ASSERT_TRUE(monitor_->control().Do(Gptq3(2)).ok());
  Step(1);
  // The monitor may be writing there.
  for (std::error_code error; std::filesystem::exists(directory_.path());) {
    std::filesystem::remove_all(directory_.path(), error);
  }
  Step(2);
  EXPECT_EQ(Slice().state, SliceState::kFailed);
  EXPECT_THAT(Slice().error, HasSubstr("slice-2.json"));
  Step(3);
  EXPECT_EQ(recording_->Reports().back()->report.probe_status, ProbeStatus::kOk);
  EXPECT_EQ(monitor_->status().health, Health::kOk);
}

TEST_F(SliceTest, EndsWithTheMonitor) {
  // The closure itself stops the slice, at its first point.
  std::atomic<bool> held = false, hold = true;
  Create(Options(), [&] {
    if (!hold || monitor_ == nullptr || Slice().state != SliceState::kMeasuring) return;
    held = true;
    while (hold) std::this_thread::yield();
  });
  ASSERT_TRUE(monitor_->control().Do(Gptq3(101)).ok());
  Step(1);
  trainer_.Step();
  monitor_->OnStep({.step = 2, .learning_rate = 1e-2});
  ASSERT_TRUE(recording_->WaitForReports(2));
  while (!held) std::this_thread::yield();
  EXPECT_EQ(Slice().state, SliceState::kMeasuring);
  std::thread stopper([&] { EXPECT_TRUE(monitor_->Stop(seconds(60)).ok()); });
  while (Slice().state == SliceState::kMeasuring) std::this_thread::yield();
  hold = false;
  stopper.join();
  EXPECT_EQ(Slice().error, "the monitor was stopped");
  EXPECT_FALSE(std::filesystem::exists(directory_.File("slice-2.json")));
  EXPECT_EQ(monitor_->control().Do(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace slice_job_test
}  // namespace ptqwatch
