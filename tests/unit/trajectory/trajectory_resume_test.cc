// A trajectory whose process is killed goes on as if nothing had happened.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/run_source.h"
#include "support/temp_dir.h"
#include "trajectory/checkpoint_list.h"
#include "trajectory/measure_trajectory.h"
#include "unit/trajectory/trajectory_fixture.h"

namespace ptqwatch::internal {
namespace trajectory_resume_test {

using testing::FakeMeter;
using testing::MakeCheckpoint;
using testing::ReadFile;
using testing::SettingsOf;
using testing::TempDir;
using testing::WriteFile;

class KilledTrajectory : public ::testing::Test {
 protected:
  KilledTrajectory() {
    for (int i = 1; i <= 8; ++i) {
      const double jump = i > 6 ? 0.1 * i : 0;
      MakeCheckpoint(dir_.File(StrCat("step", 100 * i)), 3 - 0.1 * i, 0.1 + 0.003 * i + jump);
    }
    MakeCheckpoint(dir_.File("fork-step650"), 2, 0.2);
    options_.schedules = *LrSchedules::Parse({"wsd:peak=1e-3,decay_start=600,end=800"});
    options_.average = 2;
  }

  // Not ASSERT: also runs in a child.
  absl::Status Measure(const std::string& run_dir, FakeMeter& meter) const {
    const auto list = ListCheckpoints({dir_.path()});
    if (!list.ok()) return list.status();
    const auto run = TrajectoryRun::Open(run_dir, SettingsOf(), {.parameters = 10}, Clock::Real());
    if (!run.ok()) return run.status();
    const ModelFacts facts{.architecture = "{\"model_type\": \"fake\"}"};
    const absl::Status status =
        MeasureTrajectory(list->checkpoints, facts, options_, meter, **run, {}, {});
    (*run)->End();
    return status;
  }

  // The journal's reports, a line each, without their costs.
  static std::string Lines(const std::string& run_dir) {
    auto reports = OpenRunDirectory(run_dir)->Reports();
    EXPECT_TRUE(reports.ok()) << reports.status();
    std::string lines;
    for (AnalyzedReport& analyzed : *reports) {
      analyzed.report.cost.clear();
      lines += ToJson(analyzed) + "\n";
    }
    return lines;
  }

  const TempDir dir_;
  TrajectoryOptions options_;
};

// Two models without a step would be one checkpoint.
TEST(UnknownStep, NeedsARunDirectoryOfItsOwn) {
  const TempDir dir;
  const auto measure = [&](const std::string& name) -> absl::Status {
    const auto list = ListCheckpoints({MakeCheckpoint(dir.File(name))});
    if (!list.ok()) return list.status();
    const auto run =
        TrajectoryRun::Open(dir.File("run"), SettingsOf(), {.parameters = 10}, Clock::Real());
    if (!run.ok()) return run.status();
    FakeMeter meter;
    const absl::Status status =
        MeasureTrajectory(list->checkpoints, {.architecture = "{\"model_type\": \"fake\"}"}, {},
                          meter, **run, {}, {});
    (*run)->End();
    return status;
  };
  EXPECT_TRUE(measure("sft").ok());
  for (const char* other : {"dpo", "step100"}) {
    const absl::Status status = measure(other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << other;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("one of its own"));
  }
}

TEST_F(KilledTrajectory, HasTheJournalOfAnUndisturbedOne) {
  FakeMeter meter;
  const std::string undisturbed = dir_.File("undisturbed");
  ASSERT_TRUE(Measure(undisturbed, meter).ok());
  const std::string run_dir = dir_.File("killed");
  // Every process is killed in its second measurement, that of the mean, or in its fourth one.
  int killed = 0;
  for (int status = -1; status != 0; ++killed) {
    ASSERT_LT(killed, 20);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FakeMeter own;
      own.during = [&, fatal = killed % 2 == 0 ? 2u : 4u](const std::string&) {
        if (own.measured.size() == fatal) raise(SIGKILL);
        return absl::OkStatus();
      };
      _exit(Measure(run_dir, own).ok() ? 0 : 1);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
  }
  EXPECT_GT(killed, 4);
  EXPECT_EQ(Lines(run_dir), Lines(undisturbed));
  const std::string journal = ReadFile(run_dir + "/journal.jsonl");
  EXPECT_EQ(std::count(journal.begin(), journal.end(), '\n'), 9) << "no event, no damaged line";
}

TEST_F(KilledTrajectory, GoesOnFromAJournalThatEndsAtAnyByte) {
  FakeMeter meter;
  const std::string undisturbed = dir_.File("undisturbed");
  ASSERT_TRUE(Measure(undisturbed, meter).ok());
  const std::string expected = Lines(undisturbed);
  const std::string journal = ReadFile(undisturbed + "/journal.jsonl");
  const std::string settings = ReadFile(undisturbed + "/trajectory.json");
  const std::string run_dir = dir_.File("cut");
  std::vector<size_t> cuts;
  for (size_t end = 0; end < journal.size(); end += 701) cuts.push_back(end);
  for (size_t line = journal.find('\n'); line != std::string::npos;
       line = journal.find('\n', line + 1)) {
    cuts.push_back(line);      // a whole line without its end
    cuts.push_back(line + 1);  // a whole line
  }
  for (const size_t cut : cuts) {
    std::filesystem::remove_all(run_dir);
    std::filesystem::create_directory(run_dir);
    WriteFile(run_dir + "/trajectory.json", settings);
    WriteFile(run_dir + "/journal.jsonl", journal.substr(0, cut));
    ASSERT_TRUE(Measure(run_dir, meter).ok()) << cut;
    ASSERT_EQ(Lines(run_dir), expected) << cut;
  }
}

}  // namespace trajectory_resume_test
}  // namespace ptqwatch::internal
