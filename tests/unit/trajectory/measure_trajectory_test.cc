#include "trajectory/measure_trajectory.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/status_file.h"
#include "ptqwatch/run_source.h"
#include "support/temp_dir.h"
#include "trajectory/checkpoint_list.h"
#include "trajectory/measure_part.h"
#include "unit/trajectory/trajectory_fixture.h"

namespace ptqwatch::internal {
namespace measure_trajectory_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeMeter;
using ::testing::HasSubstr;
using testing::MakeCheckpoint;
using testing::SettingsOf;
using testing::TempDir;
using testing::WeightsOf;
using testing::WriteFile;

class Trajectory : public ::testing::Test {
 protected:
  std::string Folder(const std::string& name) const { return dir_.File(name); }
  std::string run_dir() const { return dir_.File("run"); }

  std::vector<Checkpoint> List() const {
    auto list = ListCheckpoints({dir_.path()});
    EXPECT_TRUE(list.ok()) << list.status();
    return list.ok() ? list->checkpoints : std::vector<Checkpoint>();
  }

  std::unique_ptr<TrajectoryRun> Open(const std::string& quantizers = "gptq3") {
    auto run = TrajectoryRun::Open(run_dir(), SettingsOf(quantizers), facts_, Clock::Real());
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : nullptr;
  }

  absl::Status Measure() {
    const auto run = Open();
    const absl::Status status =
        MeasureTrajectory(List(), facts_, options_, meter_, *run, listener_, context_);
    run->End();
    return status;
  }

  std::vector<AnalyzedReport> Reports() const {
    auto reports = OpenRunDirectory(run_dir())->Reports();
    EXPECT_TRUE(reports.ok()) << reports.status();
    return reports.ok() ? *reports : std::vector<AnalyzedReport>();
  }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const AnalyzedReport& analyzed : Reports()) steps.push_back(analyzed.report.step);
    return steps;
  }

  const TempDir dir_;
  FakeMeter meter_;
  TrajectoryOptions options_;
  TrajectoryListener listener_;
  ExecutionContext context_;
  ModelFacts facts_{.architecture = "{\"model_type\": \"fake\"}", .parameters = 10};
};

TEST_F(Trajectory, WritesAnOrdinaryRunDirectory) {
  MakeCheckpoint(Folder("step10-tokens1K"), 3, 0.2);
  MakeCheckpoint(Folder("step20"), 2, 0.1);
  options_.schedules = *LrSchedules::Parse({"constant:peak=1e-3"});
  ASSERT_TRUE(Measure().ok());

  const std::vector<AnalyzedReport> reports = Reports();
  ASSERT_EQ(reports.size(), 2u);
  const Report& first = reports[0].report;
  EXPECT_EQ(first.sequence, 1);
  EXPECT_EQ(first.attempt, 1);
  EXPECT_EQ(first.source, "trajectory");
  EXPECT_EQ(first.branch, std::nullopt);
  EXPECT_EQ(first.step, 10);
  EXPECT_EQ(first.tokens, 1000);
  EXPECT_EQ(first.learning_rate, 1e-3);
  EXPECT_EQ(first.lr_phase, LrPhase::kStable);
  EXPECT_EQ(first.fingerprint, SettingsOf().Fingerprint());
  EXPECT_EQ(first.probe_loss_nats, 3);
  EXPECT_TRUE(first.curvature.has_value());
  EXPECT_GT(first.snapshot_time_unix_seconds, 1.7e9);
  EXPECT_EQ(reports[1].report.run_id, first.run_id);
  EXPECT_EQ(reports[0].verdict.state, VerdictState::kWarmingUp);

  const auto status = OpenRunDirectory(run_dir())->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->monitor.health, Health::kStopped);
  EXPECT_EQ(status->monitor.last_sequence, 2);
  EXPECT_EQ(status->monitor.step, 20);
  EXPECT_EQ(status->run.parameters, 10);
}

TEST_F(Trajectory, HasNoRateIfNoneIsKnown) {
  MakeCheckpoint(Folder("step10"));
  ASSERT_TRUE(Measure().ok());
  EXPECT_EQ(Reports()[0].report.learning_rate, std::nullopt);
  EXPECT_EQ(Reports()[0].report.lr_phase, LrPhase::kUnknown);
  EXPECT_EQ(ReadStatusFile(run_dir())->monitor.learning_rate, std::nullopt);
}

TEST_F(Trajectory, MeasuresNothingTwice) {
  MakeCheckpoint(Folder("step10"));
  ASSERT_TRUE(Measure().ok());
  MakeCheckpoint(Folder("step30"));
  ASSERT_TRUE(Measure().ok());
  MakeCheckpoint(Folder("step20"));
  ASSERT_TRUE(Measure().ok());
  EXPECT_THAT(meter_.measured, ElementsAre(Folder("step10"), Folder("step30"), Folder("step20")));
  EXPECT_THAT(Steps(), ElementsAre(10, 30, 20));
}

TEST_F(Trajectory, BranchesAreSeriesOfTheirOwn) {
  for (int step = 10; step <= 100; step += 10) {
    MakeCheckpoint(Folder(StrCat("step", step)), 2, 0.1 + 0.001 * (step % 30));
  }
  MakeCheckpoint(Folder("late-step50"), 2, 5);
  options_.schedules = *LrSchedules::Parse({"constant:peak=1e-3"});
  ASSERT_TRUE(Measure().ok());
  const std::vector<AnalyzedReport> reports = Reports();
  ASSERT_EQ(reports.size(), 11u);
  EXPECT_EQ(reports[9].report.step, 100);
  EXPECT_EQ(reports[9].verdict.state, VerdictState::kHealthy);
  EXPECT_EQ(reports[10].report.branch, "late");
  EXPECT_EQ(reports[10].verdict.state, VerdictState::kWarmingUp) << "it has no baseline yet";
}

TEST_F(Trajectory, JudgesALateCheckpointWithItsNeighbours) {
  for (int step = 10; step <= 100; step += 10) {
    if (step != 50) MakeCheckpoint(Folder(StrCat("step", step)), 2, 0.1 + 0.001 * (step % 30));
  }
  options_.schedules = *LrSchedules::Parse({"constant:peak=1e-3"});
  ASSERT_TRUE(Measure().ok());
  MakeCheckpoint(Folder("step50"), 2, 0.12);
  ASSERT_TRUE(Measure().ok());
  EXPECT_EQ(Reports().back().report.step, 50);
  EXPECT_EQ(Reports().back().verdict.state, VerdictState::kHealthy)
      << "a rollback would leave too few for a baseline";
}

TEST_F(Trajectory, BlamesADecayOnlyIfItKnowsTheSchedule) {
  for (int i = 1; i <= 16; ++i) {
    MakeCheckpoint(Folder(StrCat("step", 100 * i)), 3, 0.1 + 0.002 * (i * 7 % 5));
  }
  for (int i = 17; i <= 22; ++i) {
    MakeCheckpoint(Folder(StrCat("step", 100 * i)), 2.8, 0.1 + 0.08 * (i - 16));
  }
  options_.schedules = *LrSchedules::Parse({"wsd:peak=1e-3,warmup=50,decay_start=1650,end=2200"});
  ASSERT_TRUE(Measure().ok());
  const AnalyzedReport known = Reports().back();
  EXPECT_EQ(known.report.lr_phase, LrPhase::kDecay);
  EXPECT_EQ(known.report.decay_onset_step, 1651);
  EXPECT_EQ(known.verdict.state, VerdictState::kDecayDegradation) << known.verdict.summary;

  std::filesystem::remove_all(run_dir());
  options_.schedules = LrSchedules();
  ASSERT_TRUE(Measure().ok());
  const AnalyzedReport unknown = Reports().back();
  EXPECT_EQ(unknown.report.lr_phase, LrPhase::kUnknown);
  EXPECT_EQ(unknown.report.decay_onset_step, std::nullopt);
  EXPECT_EQ(unknown.verdict.state, VerdictState::kUnclear) << unknown.verdict.summary;
}

TEST_F(Trajectory, MeasuresTheMeanOfTheLastCheckpointsOfABranch) {
  MakeCheckpoint(Folder("other-step5"), 9, 0.9);
  for (int step = 10; step <= 40; step += 10) {
    MakeCheckpoint(Folder(StrCat("step", step)), step, 0.1 * step);
  }
  options_.average = 3;
  ASSERT_TRUE(Measure().ok());
  const std::vector<AnalyzedReport> reports = Reports();
  ASSERT_EQ(reports.size(), 5u);
  EXPECT_TRUE(reports[0].report.averaging.empty());
  ASSERT_EQ(reports[1].report.averaging.size(), 1u);
  EXPECT_EQ(reports[1].report.averaging[0].snapshots, 2);
  const AveragingReport& last = reports[3].report.averaging.at(0);
  EXPECT_EQ(last.kind, AveragingKind::kWindow);
  EXPECT_EQ(last.window, 3);
  EXPECT_EQ(last.snapshots, 3);
  EXPECT_EQ(last.first_step, 20);
  EXPECT_DOUBLE_EQ(*last.loss_nats, 30);
  EXPECT_DOUBLE_EQ(*last.quantization.at(0).delta_nats, 3);
  EXPECT_EQ(reports[4].report.branch, "other");
  EXPECT_TRUE(reports[4].report.averaging.empty());
}

TEST_F(Trajectory, SaysWhichCheckpointIsNotFinite) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  meter_.during = [&](const std::string& folder) {
    return folder == Folder("step10") ? absl::DataLossError("w is NaN") : absl::OkStatus();
  };
  ASSERT_TRUE(Measure().ok());
  EXPECT_EQ(Reports()[0].report.probe_status, ProbeStatus::kNonFinite);
  EXPECT_EQ(Reports()[0].report.probe_status_detail, "w is NaN");
  EXPECT_THAT(Steps(), ElementsAre(10, 20));
}

// A damaged file is DataLoss too, but says nothing about the weights: the journal must not keep it.
TEST_F(Trajectory, ADamagedFileIsNotAFinding) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  const absl::Status damaged = absl::DataLossError("'model.safetensors' was truncated");
  bool cut = false;
  meter_.opening = [&](const std::string& folder) {
    return cut && folder == Folder("step20") ? damaged : absl::OkStatus();
  };
  meter_.during = [&](const std::string& folder) {
    cut = folder == Folder("step20");
    return cut ? damaged : absl::OkStatus();
  };
  const absl::Status status = Measure();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'step20'"), HasSubstr("truncated")));
  EXPECT_THAT(Steps(), ElementsAre(10));
  meter_.during = meter_.opening = nullptr;
  ASSERT_TRUE(Measure().ok());
  EXPECT_THAT(Steps(), ElementsAre(10, 20));
}

TEST_F(Trajectory, AMeanWithADamagedFileHasFailed) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  options_.average = 2;
  bool cut = false;
  meter_.opening = [&](const std::string& folder) {
    return cut && folder == Folder("step10") ? absl::DataLossError("truncated") : absl::OkStatus();
  };
  meter_.during = [&](const std::string& folder) {
    cut = folder == Folder("step10") && meter_.measured.size() > 1;
    return cut ? absl::DataLossError("truncated") : absl::OkStatus();
  };
  ASSERT_TRUE(Measure().ok());
  const std::vector<AnalyzedReport> reports = Reports();
  ASSERT_EQ(reports.size(), 2u);
  ASSERT_EQ(reports[1].report.averaging.size(), 1u);
  EXPECT_EQ(reports[1].report.averaging[0].status, ProbeStatus::kFailed);
  EXPECT_EQ(reports[1].report.averaging[0].status_detail, "truncated");
}

TEST_F(Trajectory, EndsAtOtherFailuresAndGoesOnFromThere) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  meter_.during = [&](const std::string& folder) {
    return folder == Folder("step20") ? absl::ResourceExhaustedError("needs 5 GB")
                                      : absl::OkStatus();
  };
  const absl::Status status = Measure();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'step20'"), HasSubstr("5 GB")));
  meter_.during = nullptr;
  ASSERT_TRUE(Measure().ok());
  EXPECT_THAT(Steps(), ElementsAre(10, 20));
}

TEST_F(Trajectory, LeavesNoTraceOfACancelledCheckpoint) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  meter_.during = [&](const std::string& folder) {
    if (folder == Folder("step20")) context_.cancel.Cancel();
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsCancelled(Measure()));
  EXPECT_THAT(Steps(), ElementsAre(10));
}

TEST_F(Trajectory, RefusesAnotherModelBeforeItMeasures) {
  MakeCheckpoint(Folder("step10"));
  WriteFile(MakeCheckpoint(Folder("step20")) + "/config.json", "{\"model_type\": \"other\"}");
  const absl::Status status = Measure();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("step20"), HasSubstr("other")));
  EXPECT_TRUE(meter_.measured.empty());
}

TEST_F(Trajectory, RefusesADirectoryWithOtherSettings) {
  MakeCheckpoint(Folder("step10"));
  ASSERT_TRUE(Measure().ok());
  const auto open = [&](const std::string& quantizers) {
    const auto run = TrajectoryRun::Open(run_dir(), SettingsOf(quantizers), facts_, Clock::Real());
    return std::string(run.status().message());
  };
  EXPECT_THAT(open("rtn4"),
              AllOf(HasSubstr(run_dir()), HasSubstr("quantizers was 'gptq3' and is 'rtn4'"),
                    HasSubstr("a directory of its own")));
  std::filesystem::remove(run_dir() + "/trajectory.json");
  EXPECT_THAT(open("rtn4"), HasSubstr("fingerprint"));
}

TEST_F(Trajectory, RefusesADirectoryOfALiveRun) {
  std::filesystem::create_directory(run_dir());
  WriteFile(run_dir() + "/journal.jsonl", ToJson(AnalyzedReport{}) + "\n");
  const auto run = TrajectoryRun::Open(run_dir(), SettingsOf(), facts_, Clock::Real());
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("has a live run"));
  EXPECT_FALSE(std::filesystem::exists(run_dir() + "/trajectory.json"));
}

TEST_F(Trajectory, RefusesADirectoryInUse) {
  const auto run = Open();
  EXPECT_FALSE(TrajectoryRun::Open(run_dir(), SettingsOf(), facts_, Clock::Real()).ok());
  const auto refused = OpenRunDirectory(run_dir())->Do(TakeSnapshot{});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("takes no commands"));
}

TEST_F(Trajectory, MergesWhatOtherProcessesMeasured) {
  for (int step = 10; step <= 40; step += 10) MakeCheckpoint(Folder(StrCat("step", step)), step);
  ASSERT_TRUE(Measure().ok());
  std::string expected;
  for (const AnalyzedReport& analyzed : Reports()) expected += ToJson(analyzed) + "\n";
  std::filesystem::remove_all(run_dir());

  const std::vector<Checkpoint> list = List();
  for (const int64_t number : {3, 0, 2}) {
    const auto measured =
        MeasurePart(run_dir(), number, list, SettingsOf(), options_, meter_, listener_, context_);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_TRUE(*measured);
  }
  EXPECT_FALSE(
      *MeasurePart(run_dir(), 2, list, SettingsOf(), options_, meter_, listener_, context_));
  meter_.measured.clear();
  ASSERT_TRUE(Measure().ok());
  EXPECT_THAT(meter_.measured, ElementsAre(Folder("step20")));
  std::string merged;
  for (const AnalyzedReport& analyzed : Reports()) merged += ToJson(analyzed) + "\n";
  EXPECT_EQ(merged, expected);
  EXPECT_TRUE(ReadParts(run_dir())->empty());
  EXPECT_FALSE(
      *MeasurePart(run_dir(), 2, list, SettingsOf(), options_, meter_, listener_, context_));
}

TEST_F(Trajectory, MergesWithoutMeasuring) {
  MakeCheckpoint(Folder("step10"));
  MakeCheckpoint(Folder("step20"));
  ASSERT_TRUE(
      MeasurePart(run_dir(), 1, List(), SettingsOf(), options_, meter_, listener_, context_).ok());
  options_.only_merge = true;
  ASSERT_TRUE(Measure().ok());
  EXPECT_THAT(Steps(), ElementsAre(20));
}

TEST_F(Trajectory, DoesNotUseAPartWithOtherSettings) {
  MakeCheckpoint(Folder("step10"));
  ASSERT_TRUE(
      MeasurePart(run_dir(), 0, List(), SettingsOf("rtn4"), options_, meter_, listener_, context_)
          .ok());
  std::filesystem::remove(run_dir() + "/trajectory.json");
  std::string notice;
  listener_.notice = [&](std::string_view text) { notice = std::string(text); };
  ASSERT_TRUE(Measure().ok());
  EXPECT_EQ(meter_.measured.size(), 2u);
  EXPECT_THAT(notice, AllOf(HasSubstr("part-0.jsonl"), HasSubstr("other settings")));
}

TEST_F(Trajectory, DoesNotReplaceThePartOfAnotherCheckpoint) {
  MakeCheckpoint(Folder("step20"));
  ASSERT_TRUE(
      MeasurePart(run_dir(), 0, List(), SettingsOf(), options_, meter_, listener_, context_).ok());
  MakeCheckpoint(Folder("step10"));
  const auto measured =
      MeasurePart(run_dir(), 0, List(), SettingsOf(), options_, meter_, listener_, context_);
  EXPECT_THAT(std::string(measured.status().message()),
              AllOf(HasSubstr("part-0.jsonl"), HasSubstr("step 20 in place of step 10")));
}

}  // namespace measure_trajectory_test
}  // namespace ptqwatch::internal
