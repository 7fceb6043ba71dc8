#include "trajectory/follow_trajectory.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/run_source.h"
#include "support/temp_dir.h"
#include "unit/trajectory/trajectory_fixture.h"

namespace ptqwatch::internal {
namespace follow_trajectory_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeMeter;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCheckpoint;
using testing::SettingsOf;
using testing::TempDir;
using testing::WriteFile;
using testing::WriteTrainerState;

// Passes the time of each look to a trainer, which writes checkpoints meanwhile.
class TrainerClock final : public Clock {
 public:
  explicit TrainerClock(std::function<void(int look)> trainer) : trainer_(std::move(trainer)) {}
  std::chrono::nanoseconds Monotonic() const override { return now_; }
  double UnixSeconds() const override { return 1.7e9; }
  void SleepFor(std::chrono::nanoseconds duration, const std::atomic<bool>&) override {
    now_ += duration;
    trainer_(++looks_);
  }

 private:
  const std::function<void(int)> trainer_;
  std::chrono::nanoseconds now_{0};
  int looks_ = 0;
};

class Followed : public ::testing::Test {
 protected:
  std::string Folder(int step) const { return dir_.File(StrCat("out/checkpoint-", step)); }
  std::string run_dir() const { return dir_.File("run"); }

  void Save(int step) const {
    MakeCheckpoint(Folder(step), step, 1);
    WriteTrainerState(Folder(step), step, 1e-3);
  }

  absl::Status Follow(std::optional<int64_t> until, std::function<void(int)> trainer) {
    TrainerClock clock(std::move(trainer));
    context_.clock = &clock;
    const auto note = [&](std::string_view text) { notices_.emplace_back(text); };
    CheckpointWatch watch({dir_.File("out")}, note);
    const auto found = WaitForCheckpoint(watch, meter_, note, context_);
    if (!found.ok()) return found.status();
    const ModelFacts& facts = found->second;
    const auto run = TrajectoryRun::Open(run_dir(), SettingsOf(), facts, Clock::Real());
    if (!run.ok()) return run.status();
    TrajectoryListener listener;
    listener.notice = note;
    return FollowTrajectory(watch, until, facts, {}, meter_, **run, listener, context_);
  }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    const auto reports = OpenRunDirectory(run_dir())->Reports();
    EXPECT_TRUE(reports.ok()) << reports.status();
    for (const AnalyzedReport& analyzed : *reports) steps.push_back(analyzed.report.step);
    return steps;
  }

  const TempDir dir_;
  FakeMeter meter_;
  ExecutionContext context_;
  std::vector<std::string> notices_;
};

TEST_F(Followed, MeasuresCheckpointsAsTheyAppear) {
  const absl::Status status = Follow(300, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 2) Save(100);
    if (look == 5) Save(200);
    if (look == 9) Save(300);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300));
}

TEST_F(Followed, WaitsForACheckpointThatCanBeRead) {
  meter_.opening = [&](const std::string& folder) {
    return folder == Folder(100) ? absl::DataLossError("model.safetensors is damaged")
                                 : absl::OkStatus();
  };
  const absl::Status status = Follow(200, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 2) Save(100);
    if (look == 6) Save(200);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(200));
  EXPECT_THAT(notices_, ::testing::Contains(AllOf(HasSubstr("checkpoint-100"),
                                                  HasSubstr("model.safetensors is damaged"))));
}

TEST_F(Followed, WaitsIfTheFirstCheckpointIsRemovedBeforeItIsOpened) {
  Save(100);
  meter_.opening = [&](const std::string& folder) -> absl::Status {
    if (folder != Folder(100)) return absl::OkStatus();
    std::filesystem::remove_all(folder);
    return absl::NotFoundError(StrCat("cannot read '", folder, "/config.json'"));
  };
  const absl::Status status = Follow(200, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 4) Save(200);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(200));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(Followed, GoesOnIfTheFirstCheckpointIsRemovedOnceItIsOpened) {
  Save(100);
  int opened = 0;
  meter_.opening = [&](const std::string& folder) -> absl::Status {
    if (folder != Folder(100) || ++opened == 1) return absl::OkStatus();
    std::filesystem::remove_all(folder);
    return absl::NotFoundError(StrCat("cannot read '", folder, "/config.json'"));
  };
  const absl::Status status = Follow(200, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 4) Save(200);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(200));
}

TEST_F(Followed, EndsAtACheckpointOfAnotherKind) {
  meter_.opening = [](const std::string&) { return absl::UnimplementedError("no such family"); };
  const absl::Status status = Follow(100, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 2) Save(100);
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such family"));
}

TEST_F(Followed, WaitsUntilACheckpointIsWhole) {
  int measured_at = 0, looks = 0;
  meter_.during = [&](const std::string&) {
    measured_at = looks;
    return absl::OkStatus();
  };
  const absl::Status status = Follow(100, [&](int look) {
    ASSERT_LT(look, 20);
    looks = look;
    if (look == 2) MakeCheckpoint(Folder(100), 1, 1);
    if (look == 5) WriteTrainerState(Folder(100), 100, 1e-3);
    if (look == 6) WriteFile(Folder(100) + "/optimizer.pt", "still being written");
    if (look == 7) WriteFile(Folder(100) + "/model.safetensors", "2.5 0.125");
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(measured_at, 8) << "its files were written at look 7 for the last time";
  EXPECT_THAT(meter_.measured, ElementsAre(Folder(100)));
}

TEST_F(Followed, EndsWhenItIsCancelled) {
  EXPECT_TRUE(absl::IsCancelled(Follow(std::nullopt, [&](int look) {
    if (look == 3) context_.cancel.Cancel();
  })));
  context_.cancel.Reset();
  Save(100);
  EXPECT_TRUE(absl::IsCancelled(Follow(std::nullopt, [&](int look) {
    if (look == 5) context_.cancel.Cancel();
  })));
  EXPECT_THAT(Steps(), ElementsAre(100));
}

// Trainers keep only the newest checkpoints.
TEST_F(Followed, GoesOnWithoutCheckpointsThatWereRemoved) {
  Save(100);
  Save(200);
  meter_.during = [&](const std::string& folder) {
    if (folder == Folder(200)) std::filesystem::remove_all(folder);
    return absl::OkStatus();
  };
  const absl::Status status = Follow(300, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 4) std::filesystem::remove_all(Folder(100));
    if (look == 6) Save(300);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 300));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("step 200 is left out")));
  // The rates of removed checkpoints are those of their reports.
  const auto reports = OpenRunDirectory(run_dir())->Reports();
  EXPECT_EQ(reports->back().report.lr_phase, LrPhase::kStable);
}

TEST_F(Followed, GoesOnIfACheckpointIsRemovedBeforeItIsOpened) {
  Save(100);
  Save(200);
  int opened = 0;
  meter_.opening = [&](const std::string& folder) -> absl::Status {
    if (folder != Folder(200) || ++opened > 1) return absl::OkStatus();
    std::filesystem::remove_all(folder);
    return absl::NotFoundError(StrCat("cannot open '", folder, "/config.json'"));
  };
  const absl::Status status = Follow(300, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 4) Save(300);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 300));
}

TEST_F(Followed, TriesAgainIfAFileIsNotWrittenToItsEnd) {
  Save(100);
  Save(200);
  bool whole = false;
  meter_.opening = [&](const std::string& folder) {
    return folder == Folder(200) && !whole ? absl::DataLossError("model.safetensors is damaged")
                                           : absl::OkStatus();
  };
  const absl::Status status = Follow(300, [&](int look) {
    ASSERT_LT(look, 20);
    whole = look >= 8;
    // Cut once more, while it is measured.
    meter_.during = [&, look](const std::string& folder) {
      whole = folder != Folder(200) || look > 8;
      return whole ? absl::OkStatus() : absl::DataLossError("model.safetensors was truncated");
    };
    if (look == 10) Save(300);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300));
  EXPECT_THAT(notices_, ElementsAre("step 200 is left out for now: model.safetensors is damaged",
                                    AllOf(HasSubstr("step 200"), HasSubstr("was truncated"))));
}

// A trainer writes the file in place.
TEST_F(Followed, WaitsWhileTheTrainersStateIsWritten) {
  Save(100);
  const absl::Status status = Follow(200, [&](int look) {
    ASSERT_LT(look, 20);
    if (look == 3) {
      MakeCheckpoint(Folder(200), 1, 1);
      WriteFile(Folder(200) + "/trainer_state.json", "{\"global_step\": 200, \"log_hi");
    }
    if (look == 6) WriteTrainerState(Folder(200), 200, 1e-3);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 200));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(Followed, SaysWhichFolderStaysIncomplete) {
  Save(100);
  MakeCheckpoint(Folder(200), 1, 1);
  const absl::Status status = Follow(300, [&](int look) {
    ASSERT_LT(look, 100);
    EXPECT_TRUE(look > 58 || notices_.empty());
    if (look == 80) Save(300);
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Steps(), ElementsAre(100, 300));
  EXPECT_THAT(notices_, ElementsAre(AllOf(HasSubstr("checkpoint-200 is left out"),
                                          HasSubstr("has no trainer_state.json"))));
}

TEST_F(Followed, DoesNotMeasureAgainAfterARestart) {
  Save(100);
  ASSERT_TRUE(Follow(100, [](int look) { ASSERT_LT(look, 20); }).ok());
  ASSERT_TRUE(Follow(200, [&](int look) {
                ASSERT_LT(look, 20);
                if (look == 3) Save(200);
              }).ok());
  EXPECT_THAT(meter_.measured, ElementsAre(Folder(100), Folder(200)));
}

}  // namespace follow_trajectory_test
}  // namespace ptqwatch::internal
