#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "ATen/TensorOperators.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/log.h"
#include "ptqwatch/monitor.h"
#include "support/recording_exporter.h"
#include "support/temp_dir.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace monitor_create_test {

using testing::Fault;
using ::testing::HasSubstr;
using testing::TinyTrainer;

MonitorOptions Strict() {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  return options;
}

absl::Status CreateStatus(Fault fault, MonitorOptions options = Strict()) {
  TinyTrainer trainer;
  const std::string before = trainer.Bytes();
  auto monitor = Monitor::Create(trainer.MakeSubject(fault), options);
  // A closure that runs the live model in training mode changes the model's buffers itself.
  if (fault != Fault::kLossesUseLiveModel) {
    EXPECT_TRUE(trainer.Bytes() == before);
  }
  return monitor.status();
}

TEST(MonitorCreate, SaysWhatIsWrongWithTheReplica) {
  const auto message = [](Fault fault) { return std::string(CreateStatus(fault).message()); };
  EXPECT_THAT(message(Fault::kReplicaThrows), HasSubstr("no such checkpoint"));
  EXPECT_THAT(message(Fault::kReplicaOtherShape), HasSubstr("[12, 20]"));
  EXPECT_THAT(message(Fault::kReplicaUntied), HasSubstr("'embedding.weight'"));
  EXPECT_THAT(message(Fault::kReplicaIsLive), HasSubstr("live model itself"));
  EXPECT_THAT(message(Fault::kReplicaEmpty), HasSubstr("empty model"));
}

TEST(MonitorCreate, SaysWhatIsWrongWithTheLosses) {
  const auto message = [](Fault fault) { return std::string(CreateStatus(fault).message()); };
  EXPECT_THAT(message(Fault::kNoLosses), HasSubstr("losses is not set"));
  EXPECT_THAT(message(Fault::kLossesThrow), HasSubstr("index out of range"));
  EXPECT_THAT(message(Fault::kLossesDrawRandom), HasSubstr("draws random numbers"));
  EXPECT_THAT(message(Fault::kLossesWrongShape), HasSubstr("[8, 10, 2]"));
  EXPECT_THAT(message(Fault::kLossesNotDeterministic), HasSubstr("different values"));
  EXPECT_THAT(message(Fault::kNoProbe), HasSubstr("probe"));
  EXPECT_THAT(message(Fault::kLossesTrainAPart),
              HasSubstr("losses leaves 'norm' (torch::nn::LayerNormImpl) in training mode"));
  EXPECT_THAT(message(Fault::kLossesSum), HasSubstr("losses returns a sum over the batch"));
  EXPECT_THAT(message(Fault::kLossesNotFinite),
              HasSubstr("the losses are not finite: 80 of 80 values"));
  EXPECT_THAT(message(Fault::kLossesMissTensor),
              HasSubstr("the batch has 2 tensors, so batch[2] does not exist"));
  EXPECT_THAT(message(Fault::kBadLabel), HasSubstr("probe batch 4: losses threw: Target 12"));
  // Dropout reveals that the live model is in training mode.
  EXPECT_THAT(message(Fault::kLossesUseLiveModel), HasSubstr("random numbers"));
}

TEST(MonitorCreate, NamesTheOptionAndItsValue) {
  MonitorOptions options = Strict();
  options.schedule.every = -3;
  const absl::Status status = CreateStatus(Fault::kNone, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("schedule.every = -3"));
}

TEST(MonitorCreate, RefusesNulls) {
  EXPECT_EQ(Monitor::Create(nullptr, Strict()).status().code(), absl::StatusCode::kInvalidArgument);
  TinyTrainer trainer;
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(nullptr);
  EXPECT_EQ(Monitor::Create(trainer.MakeSubject(), Strict(), std::move(exporters)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MonitorCreate, RefusesARunDirectoryThatIsAFile) {
  const testing::TempDir dir;
  MonitorOptions options = Strict();
  options.run_dir = dir.File("file");
  testing::WriteFile(options.run_dir, "");
  const absl::Status status = CreateStatus(Fault::kNone, options);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.run_dir));
}

TEST(MonitorCreate, IsInertWhenDisabled) {
  setenv("PTQWATCH_DISABLE", "1", 1);
  auto monitor = Monitor::Create(nullptr);
  unsetenv("PTQWATCH_DISABLE");
  ASSERT_TRUE(monitor.ok());
  (*monitor)->OnStep({.step = 1000, .learning_rate = 1});
  EXPECT_FALSE((*monitor)->control().Do(TakeSnapshot{}).ok());
  EXPECT_TRUE((*monitor)->Finish(std::chrono::seconds(1)).ok());
  EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(1)).ok());
  EXPECT_FALSE((*monitor)->status().step);
  EXPECT_EQ((*monitor)->latest(), nullptr);
  EXPECT_THAT((*monitor)->Describe(), HasSubstr("PTQWATCH_DISABLE"));
}

TEST(MonitorCreate, DescribesWhatIsCoveredAndWhatIsNot) {
  TinyTrainer trainer;
  auto monitor = Monitor::Create(trainer.MakeSubject(), Strict());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const std::string text = (*monitor)->Describe();
  EXPECT_THAT(text, HasSubstr("blocks.1.weight"));
  EXPECT_THAT(text, HasSubstr("tied to an embedding"));
  EXPECT_THAT(text, HasSubstr("gptq b3"));
  EXPECT_THAT(text, HasSubstr("training loses at most 2 % of its time"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("error bars")));
}

// The closure returns one mean per batch.
TEST(MonitorCreate, DescribesWhatFewUnitsMeanForErrorBars) {
  const at::Tensor weight = at::ones({4, 4}), head = at::ones({4, 2});
  const Batch batch = {at::ones({4, 4})};
  const auto describe = [&](std::vector<Batch> probe) {
    auto monitor = Monitor::Create(
        MakeFunctionSubject(
            {.live = {{"weight", weight, true},
                      {"head", head, true},
                      {"b1", at::ones({4}), true},
                      {"b2", at::ones({2}), true}},
             .losses =
                 [](const TensorMap& tensors, const Batch& x) {
                   const at::Tensor h =
                       at::relu(at::matmul(x[0], tensors.at("weight")) + tensors.at("b1"));
                   return LossValues(
                       (at::matmul(h, tensors.at("head")) + tensors.at("b2")).square().mean());
                 },
             .probe = std::move(probe)}),
        Strict());
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    return monitor.ok() ? (*monitor)->Describe() : std::string();
  };
  const std::string text = describe({batch, batch});
  EXPECT_THAT(text, HasSubstr("losses: one mean a batch, so that error bars come from 8 numbers"));
  EXPECT_THAT(text, ::testing::ContainsRegex("2 norms and biases +6 parameters"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("b1")));
}

TEST(MonitorCreate, DescribesWhatCalibrationCosts) {
  TinyTrainer trainer;
  MonitorOptions options = Strict();
  options.max_gram_bytes =
      2 * 8 * 16 * 16;  // room for two of the three layers, which have 16 inputs
  const auto describe = [&] {
    auto monitor = Monitor::Create(trainer.MakeSubject(), options);
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    return monitor.ok() ? (*monitor)->Describe() : std::string();
  };
  EXPECT_THAT(describe(), HasSubstr("calibration: one_shot, 4 batches\n"
                                    "  2 passes over them (8 forward passes) for all quantizers"));
  options.calibration_mode = CalibrationMode::kSequential;
  const std::string text = describe();
  EXPECT_THAT(text, HasSubstr("calibration: sequential, 4 batches\n"
                              "  2 passes over them (8 forward passes) for the layer errors"));
  EXPECT_THAT(text, HasSubstr("  3 passes over them (12 forward passes) for gptq b3"));
  EXPECT_THAT(text, HasSubstr("  3 passes over them (12 forward passes) for gptq b4"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("for rtn")));
  // A layer that does not fit is reported by name.
  options.max_gram_bytes = 100;
  auto monitor = Monitor::Create(trainer.MakeSubject(), options);
  EXPECT_EQ(monitor.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(monitor.status().message()), HasSubstr("max_gram_bytes"));
}

TEST(MonitorCreate, ResumesARunDirectory) {
  const testing::TempDir dir;
  const std::string run_dir = dir.path();
  MonitorOptions options = Strict();
  options.schedule.every = 5;
  options.duty_cycle = 1.0;  // no rests
  options.run_dir = run_dir;
  TinyTrainer trainer;
  std::string run_id;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    if (attempt == 2) {
      // Simulates a crash in the middle of a line.
      std::ofstream(run_dir + "/journal.jsonl", std::ios::app) << "{\"sequence\": 3, \"st";
    }
    auto recording = std::make_shared<testing::Recording>();
    std::vector<std::unique_ptr<Exporter>> exporters;
    exporters.push_back(std::make_unique<testing::RecordingExporter>(recording));
    auto monitor = Monitor::Create(trainer.MakeSubject(), options, std::move(exporters));
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    for (int i = 1; i <= 2; ++i) {
      (*monitor)->OnStep({.step = (attempt - 1) * 10 + 5 * i, .learning_rate = 1e-2});
      ASSERT_TRUE(recording->WaitForReports(static_cast<size_t>(i)));
    }
    const auto report = recording->Reports().back()->report;
    EXPECT_EQ(report.attempt, attempt);
    EXPECT_EQ(report.sequence, attempt * 2);
    EXPECT_EQ(report.lr_phase, LrPhase::kStable);
    if (attempt == 1) run_id = report.run_id;
    EXPECT_EQ(report.run_id, run_id);
    EXPECT_FALSE(run_id.empty());
    ASSERT_TRUE((*monitor)->Stop(std::chrono::seconds(5)).ok());
  }
  std::ifstream journal(run_dir + "/journal.jsonl");
  std::string line;
  int reports = 0;
  std::vector<Event::Kind> events;
  int bad = 0;
  while (std::getline(journal, line)) {
    if (const auto event = EventFromJson(line); event.ok()) {
      events.push_back(event->kind);
    } else {
      ++(FromJson(line).ok() ? reports : bad);
    }
  }
  EXPECT_EQ(reports, 4);
  EXPECT_EQ(bad, 1);
  EXPECT_THAT(events, ::testing::Contains(Event::Kind::kResumed));
}

}  // namespace monitor_create_test
}  // namespace ptqwatch
