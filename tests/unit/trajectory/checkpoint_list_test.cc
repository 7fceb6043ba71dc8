#include "trajectory/checkpoint_list.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"
#include "unit/trajectory/trajectory_fixture.h"

namespace ptqwatch::internal {
namespace checkpoint_list_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCheckpoint;
using testing::TempDir;
using testing::WriteFile;
using testing::WriteTrainerState;

std::vector<std::string> Places(const CheckpointList& list) {
  std::vector<std::string> places;
  for (const Checkpoint& checkpoint : list.checkpoints) places.push_back(PlaceOf(checkpoint));
  return places;
}

std::string MessageOf(const absl::StatusOr<CheckpointList>& list) {
  return std::string(list.status().message());
}

TEST(ListCheckpoints, SortsFoldersByBranchAndStep) {
  const TempDir dir;
  const auto list = ListCheckpoints({MakeCheckpoint(dir.File("step1000-tokens2B")),
                                     MakeCheckpoint(dir.File("stage2-step5")),
                                     MakeCheckpoint(dir.File("step50")) + "/"});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step 50", "step 1000", "branch stage2, step 5"));
  EXPECT_EQ(list->checkpoints[1].tokens, 2'000'000'000);
  EXPECT_EQ(list->checkpoints[0].name, "step50");
}

TEST(ListCheckpoints, FindsTheCheckpointsOfATrainer) {
  const TempDir dir;
  MakeCheckpoint(dir.path());  // the model at the end, which Trainer saves beside its checkpoints
  for (const int step : {500, 1000}) {
    const std::string folder = MakeCheckpoint(dir.File(StrCat("checkpoint-", step)));
    WriteTrainerState(folder, step, 1e-3);
  }
  MakeCheckpoint(dir.File("tmp-checkpoint-1500"));
  std::filesystem::create_directory(dir.File("checkpoint-2000"));
  std::filesystem::create_directory(dir.File("runs"));
  const auto list = ListCheckpoints({dir.path()});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step 500", "step 1000"));
  EXPECT_THAT(list->checkpoints[0].rates, ElementsAre(LrChangePoint{500, 1e-3}));
  EXPECT_THAT(list->left_out,
              ElementsAre(AllOf(HasSubstr("checkpoint-2000"), HasSubstr("config.json"))));
}

TEST(ListCheckpoints, TrustsTheTrainerMoreThanTheName) {
  const TempDir dir;
  const std::string folder = MakeCheckpoint(dir.File("best"));
  WriteTrainerState(folder, 700, 1e-3);
  const auto list = ListCheckpoints({folder});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step 700"));
}

// models--ORG--NAME/refs/REVISION holds a commit; its files are in snapshots/COMMIT.
class HubCache : public ::testing::Test {
 protected:
  HubCache() : cache_(dir_.File("models--org--name")) {
    std::filesystem::create_directories(cache_ + "/refs/pr");
    std::filesystem::create_directories(cache_ + "/snapshots");
    Add("step1", "c1");
    Add("step143000", "c2");
    WriteFile(cache_ + "/refs/main", "c2");
    WriteFile(cache_ + "/refs/pr/12", "c3");
    WriteFile(cache_ + "/refs/step5", "c5");  // only the ref was downloaded
  }
  void Add(const std::string& revision, const std::string& commit) {
    WriteFile(cache_ + "/refs/" + revision, commit + "\n");
    MakeCheckpoint(cache_ + "/snapshots/" + commit);
  }

  const TempDir dir_;
  const std::string cache_;
};

TEST_F(HubCache, GivesItsDownloadedRevisions) {
  const auto list = ListCheckpoints({cache_});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step 1", "step 143000"));
  EXPECT_EQ(list->checkpoints[1].name, "step143000");
  EXPECT_EQ(list->checkpoints[1].path, cache_ + "/snapshots/c2");
  EXPECT_THAT(list->left_out, ElementsAre(HasSubstr("step5"), HasSubstr("pr/12")));
}

TEST_F(HubCache, GivesASnapshotTheNameOfARevisionWithAStep) {
  for (const std::string& path : {cache_ + "/snapshots/c2", cache_ + "/refs/step143000"}) {
    const auto list = ListCheckpoints({path});
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_THAT(Places(*list), ElementsAre("step 143000"));
    EXPECT_EQ(std::filesystem::path(list->checkpoints[0].path),
              std::filesystem::path(cache_ + "/snapshots/c2"));
  }
}

TEST_F(HubCache, WithoutAStepSaysSo) {
  for (const char* revision : {"step1", "step143000", "step5"}) {
    std::filesystem::remove(cache_ + "/refs/" + revision);
  }
  Add("other", "c3");
  EXPECT_THAT(MessageOf(ListCheckpoints({cache_})),
              AllOf(HasSubstr("models--org--name"), HasSubstr("no downloaded revision")));
}

TEST_F(HubCache, GivesTheOnlySnapshotWithoutAStep) {
  const TempDir dir;
  const std::string cache = dir.File("models--org--other");
  MakeCheckpoint(cache + "/snapshots/c1");
  std::filesystem::create_directories(cache + "/refs");
  WriteFile(cache + "/refs/main", "c1");
  const auto list = ListCheckpoints({cache});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step unknown"));
  EXPECT_EQ(list->checkpoints[0].name, "main");
  EXPECT_THAT(list->left_out, IsEmpty());
}

TEST(ListCheckpoints, TakesACheckpointWithoutAStepAlone) {
  const TempDir dir;
  const auto list = ListCheckpoints({MakeCheckpoint(dir.File("final"))});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(Places(*list), ElementsAre("step unknown"));
  const auto soup = MakeSoup({dir.File("final"), MakeCheckpoint(dir.File("step5"))}, {});
  ASSERT_TRUE(soup.ok()) << soup.status();
  EXPECT_EQ(PlaceOf(*soup), "branch soup, step 5");
}

TEST(ListCheckpoints, SaysWhatAFolderInAnotherFormatHolds) {
  const TempDir dir;
  WriteFile(dir.File("model.gguf"), "x");
  EXPECT_THAT(MessageOf(ListCheckpoints({dir.path()})), HasSubstr("llama.cpp"));
  std::filesystem::create_directory(dir.File("checkpoint-5"));
  WriteFile(dir.File("checkpoint-5/adapter_config.json"), "{}");
  EXPECT_THAT(MessageOf(ListCheckpoints({dir.path()})), HasSubstr("a PEFT adapter"));
}

TEST(ListCheckpoints, SaysHowToGiveAStep) {
  const TempDir dir;
  const auto list =
      ListCheckpoints({MakeCheckpoint(dir.File("final")), MakeCheckpoint(dir.File("step5"))});
  EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(list),
              AllOf(HasSubstr("final"), HasSubstr("step512"), HasSubstr("path,step")));
}

TEST(ListCheckpoints, RefusesTwoCheckpointsOfOneStep) {
  const TempDir dir;
  const auto list = ListCheckpoints(
      {MakeCheckpoint(dir.File("a/step5")), MakeCheckpoint(dir.File("b/step5-tokens1B"))});
  EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(list),
              AllOf(HasSubstr("of step 5"), HasSubstr("a/step5"), HasSubstr("b/step5-tokens1B")));
}

TEST(ListCheckpoints, RefusesWhatHoldsNoCheckpoint) {
  const TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(ListCheckpoints({dir.File("gone")}).status()));
  EXPECT_THAT(MessageOf(ListCheckpoints({dir.path()})), HasSubstr("neither a config.json nor"));
  std::filesystem::create_directory(dir.File("step5"));
  EXPECT_THAT(MessageOf(ListCheckpoints({dir.path()})), HasSubstr("no complete checkpoint"));
}

TEST(ListCheckpoints, WaitsForWhatIsIncomplete) {
  const TempDir dir;
  EXPECT_THAT(ListCheckpoints({dir.File("gone")}, /*growing=*/true)->checkpoints, IsEmpty());
  const std::string folder = dir.File("checkpoint-5");
  std::filesystem::create_directory(folder);
  WriteFile(folder + "/config.json", "{}");
  const auto found = [&] {
    const auto list = ListCheckpoints({dir.path()}, /*growing=*/true);
    EXPECT_TRUE(list.ok()) << list.status();
    return list->checkpoints.size();
  };
  EXPECT_EQ(found(), 0u);
  WriteFile(folder + "/model.safetensors.index.json",
            R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  WriteFile(folder + "/model-1.safetensors", "x");
  EXPECT_EQ(found(), 0u);
  WriteFile(folder + "/model-2.safetensors", "x");
  EXPECT_EQ(found(), 0u) << "Trainer writes its state last";
  WriteTrainerState(folder, 5, 0.1);
  EXPECT_EQ(found(), 1u);
}

TEST(MakeSoup, TakesNamesAndPaths) {
  const TempDir dir;
  const auto list =
      ListCheckpoints({MakeCheckpoint(dir.File("a-step5")), MakeCheckpoint(dir.File("b-step7"))});
  const std::string other = MakeCheckpoint(dir.File("c-step6"));
  const auto soup = MakeSoup({"a-step5", "b-step7", other}, list->checkpoints);
  ASSERT_TRUE(soup.ok()) << soup.status();
  EXPECT_EQ(PlaceOf(*soup), "branch soup, step 7");
  EXPECT_THAT(soup->soup, ElementsAre(dir.File("a-step5"), dir.File("b-step7"), other));
  EXPECT_EQ(soup->name, "a-step5+b-step7+c-step6");
  EXPECT_THAT(std::string(MakeSoup({"a-step5", "d-step9"}, list->checkpoints).status().message()),
              HasSubstr("'d-step9'"));
  EXPECT_FALSE(MakeSoup({"a-step5"}, list->checkpoints).ok());
  EXPECT_THAT(std::string(MakeSoup({"a-step5", "a-step5"}, list->checkpoints).status().message()),
              HasSubstr("'a-step5' is there twice"));
}

}  // namespace checkpoint_list_test
}  // namespace ptqwatch::internal
