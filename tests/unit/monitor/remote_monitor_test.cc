// A monitor whose measuring half is a process of its own: this program, which main makes a
// trainer's process or the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/copy.h"
#include "ptqwatch/log.h"
#include "ptqwatch/measure_for_trainer.h"
#include "ptqwatch/monitor.h"
#include "ptqwatch/run_source.h"
#include "support/eventually.h"
#include "support/recording_exporter.h"
#include "support/temp_dir.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace remote_monitor_test {

using testing::Eventually;
using testing::Fault;
using ::testing::HasSubstr;
using testing::TinyTrainer;

MonitorOptions Options(const std::string& run_dir) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule = {.every = 20, .decay_density = 1};
  options.adapt_plan = false;
  options.duty_cycle = 1;
  options.quantizers = {{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8}};
  options.run_dir = run_dir;
  options.run_id = "run";
  return options;
}

// The process that measures, in the way that its argument says. The losses hang while there is a
// file of that name.
int Measure(const std::string& way) {
  MonitorOptions options = Options("");
  if (way == "another schedule") options.schedule.every = 7;
  if (way == "bfloat16") options.snapshot_dtype = way;
  if (way == "two threads") options.measuring_threads = 2;
  const TinyTrainer trainer(/*seed=*/1);
  if (way == "trains") {
    options.run_dir = "/tmp";
    options.process = ProcessOptions();
    return Monitor::Create(trainer.MakeSubject(), options).ok() ? 0 : 1;
  }
  auto subject = trainer.MakeSubject(way == "throws" ? Fault::kReplicaThrows : Fault::kNone, [way] {
    while (access(way.c_str(), F_OK) == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  return MeasureForTrainer(std::move(subject), options);
}

// The reports of a run directory, without their times.
std::vector<Report> ReportsOf(const testing::TempDir& directory) {
  std::vector<Report> reports;
  const auto read = OpenRunDirectory(directory.path())->Reports();
  EXPECT_TRUE(read.ok()) << read.status();
  for (const AnalyzedReport& analyzed : *read) {
    reports.push_back(analyzed.report);
    reports.back().cost = {};
    reports.back().snapshot_time_unix_seconds = 0;
  }
  return reports;
}

class RemoteMonitorTest : public ::testing::Test {
 protected:
  RemoteMonitorTest() { SetLogSink(Severity::kError, nullptr); }

  absl::StatusOr<std::unique_ptr<Monitor>> Create(
      const std::string& way = "works",
      std::chrono::milliseconds start_timeout = std::chrono::seconds(60)) {
    trainer_.emplace(/*seed=*/1);
    MonitorOptions options = Options(directory_.path());
    options.process = ProcessOptions{.arguments = {way}, .start_timeout = start_timeout};
    return Monitor::Create(trainer_->MakeSubject(), options);
  }
  void TrainTo(Monitor& monitor, int64_t last) {
    while (step_ < last) {
      trainer_->Step();
      monitor.OnStep({.step = ++step_, .learning_rate = 1e-2});
    }
  }
  static pid_t ProcessOf(const Monitor& monitor) {
    const std::string text = monitor.Describe();
    return std::atoi(text.c_str() + std::string_view("measured by process ").size());
  }

  testing::TempDir directory_;
  std::optional<TinyTrainer> trainer_{1};
  int64_t step_ = 0;
};

TEST_F(RemoteMonitorTest, ReportsAreThoseOfAThread) {
  std::vector<Report> expected;
  {
    TinyTrainer trainer(/*seed=*/1);
    testing::TempDir directory;
    auto monitor = Monitor::Create(trainer.MakeSubject(), Options(directory.path()));
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    for (int64_t step = 1; step <= 25; ++step) {
      trainer.Step();
      (*monitor)->OnStep({.step = step, .learning_rate = 1e-2});
    }
    ASSERT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
    ASSERT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
    expected = ReportsOf(directory);
  }
  auto monitor = Create();
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  TrainTo(**monitor, 25);
  ASSERT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
  EXPECT_EQ((*monitor)->latest()->report.step, 25);
  EXPECT_TRUE(Eventually([&] { return (*monitor)->status().step == 25; }));
  EXPECT_TRUE((*monitor)->control().Do(Pause{}).ok());
  EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_EQ(ReportsOf(directory_), expected);
  EXPECT_FALSE((*monitor)->Finish(std::chrono::seconds(1)).ok());
}

TEST_F(RemoteMonitorTest, RoundedWeightsAreThoseOfARoundedModel) {
  std::vector<Report> reports[2];
  for (const bool rounded : {false, true}) {
    testing::TempDir directory;
    trainer_.emplace(/*seed=*/1);
    step_ = 0;
    MonitorOptions options = Options(directory.path());
    options.process = ProcessOptions{.arguments = {rounded ? "bfloat16" : "works"}};
    if (rounded) options.snapshot_dtype = "bfloat16";
    auto monitor = Monitor::Create(trainer_->MakeSubject(), options);
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    TrainTo(**monitor, 19);
    trainer_->Step();
    if (!rounded) {
      const at::NoGradGuard no_grad;
      for (const NamedTensor& named : trainer_->MakeSubject()->LiveTensors()) {
        if (named.is_parameter) named.tensor.copy_(named.tensor.to(at::kBFloat16));
      }
    }
    (*monitor)->OnStep({.step = 20, .learning_rate = 1e-2});
    EXPECT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
    EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
    reports[rounded] = ReportsOf(directory);
  }
  ASSERT_EQ(reports[1].size(), 1u);
  EXPECT_EQ(reports[1][0].snapshot_dtype, "bfloat16");
  EXPECT_NE(reports[1][0].fingerprint, reports[0][0].fingerprint);
  EXPECT_TRUE(reports[1][0].curvature.has_value());
  reports[1][0].snapshot_dtype = std::nullopt;
  reports[1][0].fingerprint = reports[0][0].fingerprint;
  EXPECT_EQ(reports[1], reports[0]);
}

TEST_F(RemoteMonitorTest, SeveralThreadsMeasure) {
  std::vector<Report> reports[2];
  for (const int threads : {1, 2}) {
    testing::TempDir directory;
    trainer_.emplace(/*seed=*/1);
    step_ = 0;
    MonitorOptions options = Options(directory.path());
    options.process = ProcessOptions{.arguments = {threads == 1 ? "works" : "two threads"}};
    options.measuring_threads = threads;
    auto monitor = Monitor::Create(trainer_->MakeSubject(), options);
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    std::ifstream file("/proc/" + std::to_string(ProcessOf(**monitor)) + "/environ");
    const std::string environment(std::istreambuf_iterator<char>(file), {});
    EXPECT_THAT(environment, HasSubstr("OMP_NUM_THREADS=" + std::to_string(threads)));
    EXPECT_THAT(environment, HasSubstr("OMP_WAIT_POLICY="));
    TrainTo(**monitor, 20);
    EXPECT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
    EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
    reports[threads - 1] = ReportsOf(directory);
  }
  ASSERT_EQ(reports[0].size(), 1u);
  EXPECT_EQ(reports[1], reports[0]) << "the model is too small for LibTorch to use two";
}

TEST_F(RemoteMonitorTest, RefusesOptionsOfAProcessWithoutOne) {
  MonitorOptions options = Options(directory_.path());
  options.measuring_threads = 4;
  const auto error = [&] {
    return std::string(Monitor::Create(trainer_->MakeSubject(), options).status().message());
  };
  EXPECT_THAT(error(), HasSubstr("MonitorOptions.measuring_threads = 4: only for a monitor with a "
                                 "process of its own"));
  options.measuring_threads = 1;
  options.snapshot_dtype = "float16";
  EXPECT_THAT(error(), HasSubstr("MonitorOptions.snapshot_dtype = 'float16': only for"));
}

TEST_F(RemoteMonitorTest, AShardedModelIsPutTogether) {
  std::vector<Report> reports[2];
  for (const bool sharded : {false, true}) {
    testing::TempDir directory;
    MonitorOptions options = Options(directory.path());
    options.process = ProcessOptions{.arguments = {"works"}};
    trainer_.emplace(/*seed=*/1);
    step_ = 0;
    auto monitor = Monitor::Create(
        sharded ? trainer_->MakeShardedSubject() : trainer_->MakeSubject(), options);
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    TrainTo(**monitor, 25);
    EXPECT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
    EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
    EXPECT_FALSE(std::filesystem::exists(directory.path() + "/shards"));
    reports[sharded] = ReportsOf(directory);
  }
  EXPECT_EQ(reports[0].size(), 2u);
  EXPECT_TRUE(reports[1].back().curvature.has_value());
  EXPECT_EQ(reports[0], reports[1]);
}

TEST_F(RemoteMonitorTest, ARankThatOnlyCopiesDoesNotWaitForEver) {
  MonitorOptions options = Options(directory_.path());
  options.rank = 1;
  options.ranks = 2;
  options.process = ProcessOptions{.start_timeout = std::chrono::milliseconds(0)};
  auto monitor = Monitor::Create(trainer_->MakeShardedSubject(), options);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_THAT(std::string((*monitor)->creation_status().message()),
              HasSubstr("first rank has no monitor that measures"));
  TrainTo(**monitor, 25);
  EXPECT_THAT((*monitor)->Describe(), HasSubstr("rank 1 copies its part"));
  EXPECT_THAT(std::string((*monitor)->Finish(std::chrono::milliseconds(20)).message()),
              HasSubstr("no process measures"));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/shards/rank-0001.json"));
  EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/shards"));
  TrainTo(**monitor, 45);
}

TEST_F(RemoteMonitorTest, ARankThatOnlyCopiesAndFailsLeavesTheRunAlone) {
  MonitorOptions options = Options(directory_.path());
  options.on_failure = OnFailure::kInert;
  options.rank = 1;
  options.ranks = 2;
  options.schedule = {.every_seconds = 1};
  options.process = ProcessOptions();
  auto monitor = Monitor::Create(trainer_->MakeShardedSubject(), options);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_FALSE((*monitor)->creation_status().ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/lock"));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/shards/rank-0001-refusal.json"))
      << "until the end of the process";
}

TEST_F(RemoteMonitorTest, RefusesAShardedModelThatNoProcessMeasures) {
  const auto error = [&](const MonitorOptions& options) {
    return std::string(Monitor::Create(trainer_->MakeShardedSubject(), options).status().message());
  };
  EXPECT_THAT(error(Options(directory_.path())), HasSubstr("MonitorOptions.process"));
  MonitorOptions options = Options("");
  options.process = ProcessOptions();
  EXPECT_THAT(error(options), HasSubstr("find each other in run_dir"));
  options.run_dir = directory_.path();
  options.schedule = {.every_seconds = 1};
  EXPECT_THAT(error(options), HasSubstr("schedule.every_seconds = 1: must be zero"));
}

TEST_F(RemoteMonitorTest, AProcessThatIsKilledIsReplaced) {
  auto monitor = Create();
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  TrainTo(**monitor, 25);
  EXPECT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
  const pid_t first = ProcessOf(**monitor);
  ASSERT_GT(first, 0);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  TrainTo(**monitor, 30);
  EXPECT_EQ((*monitor)->Finish(std::chrono::seconds(60)), absl::OkStatus());
  EXPECT_NE(ProcessOf(**monitor), first);
  EXPECT_EQ((*monitor)->latest()->report.step, 30);
  EXPECT_TRUE((*monitor)->Stop(std::chrono::seconds(20)).ok());
  std::vector<int64_t> steps;
  for (const Report& report : ReportsOf(directory_)) steps.push_back(report.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{20, 25, 30})) << "the second one finishes when asked";
}

TEST_F(RemoteMonitorTest, AProcessThatFailsLateIsKnownLater) {
  auto monitor = Create("throws", std::chrono::milliseconds(0));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  EXPECT_TRUE(Eventually([&] { return !(*monitor)->creation_status().ok(); }));
  EXPECT_THAT(std::string((*monitor)->creation_status().message()), HasSubstr("replica"));
  TrainTo(**monitor, 3);
  EXPECT_FALSE((*monitor)->Finish(std::chrono::seconds(60)).ok());
}

TEST_F(RemoteMonitorTest, AProcessThatHangsEndsWithStop) {
  const std::string file = directory_.path() + "/hang";
  auto monitor = Create(file);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  std::ofstream(file).close();
  TrainTo(**monitor, 20);
  EXPECT_TRUE(absl::IsDeadlineExceeded((*monitor)->Finish(std::chrono::milliseconds(200))));
  const pid_t process = ProcessOf(**monitor);
  ASSERT_EQ(kill(process, 0), 0);
  (*monitor)->Stop(std::chrono::milliseconds(200)).IgnoreError();
  EXPECT_NE(kill(process, 0), 0);
  TrainTo(**monitor, 25);
}

TEST_F(RemoteMonitorTest, SaysWhyItsProcessCannotMeasure) {
  EXPECT_THAT(std::string(Create("throws").status().message()), HasSubstr("replica"));
  EXPECT_THAT(std::string(Create("another schedule").status().message()),
              HasSubstr("MonitorOptions.schedule is not the trainer's, which is every 20,"));
  EXPECT_THAT(std::string(Create("trains").status().message()),
              HasSubstr("does not call MeasureForTrainer before Monitor::Create"));
}

TEST_F(RemoteMonitorTest, NamesOptionsThatAProcessCannotFollow) {
  const auto error = [&](const std::string& run_dir, ProcessOptions process) {
    MonitorOptions options = Options(run_dir);
    options.process = std::move(process);
    return std::string(Monitor::Create(trainer_->MakeSubject(), options).status().message());
  };
  EXPECT_THAT(error("", {}), HasSubstr("MonitorOptions.run_dir is empty"));
  EXPECT_THAT(error(directory_.path(), {.program = "/nowhere/worker"}),
              HasSubstr("MonitorOptions.process.program = '/nowhere/worker'"));
  EXPECT_THAT(error(directory_.path(), {.start_timeout = std::chrono::milliseconds(-1)}),
              HasSubstr("MonitorOptions.process.start_timeout = -1 ms"));
  EXPECT_THAT(error(directory_.path(), {.program = "/bin/false"}), HasSubstr("exit status 1"));
  std::vector<std::unique_ptr<Exporter>> exporters;
  exporters.push_back(
      std::make_unique<testing::RecordingExporter>(std::make_shared<testing::Recording>()));
  MonitorOptions options = Options(directory_.path());
  options.process = ProcessOptions();
  EXPECT_THAT(std::string(Monitor::Create(trainer_->MakeSubject(), options, std::move(exporters))
                              .status()
                              .message()),
              HasSubstr("exporters are given with MonitorOptions.process"));
}

TEST_F(RemoteMonitorTest, NoMonitorHasStartedThisProcess) {
  EXPECT_FALSE(IsMeasuringProcess());
  EXPECT_EQ(MeasureForTrainer(trainer_->MakeSubject(), Options(directory_.path())), EXIT_FAILURE);
}

}  // namespace remote_monitor_test
}  // namespace ptqwatch

int main(int argc, char** argv) {
  if (ptqwatch::IsMeasuringProcess()) return ptqwatch::remote_monitor_test::Measure(argv[1]);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
