#include "monitor/rank_place.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <string>

#include "journal/rank_directory.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace rank_place_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

absl::StatusOr<RankPlace> Place(const std::map<std::string, std::string>& environment,
                                const MonitorOptions& options = {}) {
  return FindRankPlace(options, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankPlace, IsThatOfTheLauncher) {
  EXPECT_EQ(*Place({}), RankPlace());
  EXPECT_EQ(*Place({{"RANK", "3"}, {"WORLD_SIZE", "4"}}), (RankPlace{3, 4}));
  EXPECT_EQ(*Place({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            (RankPlace{0, 2}));
  EXPECT_EQ(*Place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), (RankPlace{1, 2}));
  EXPECT_EQ(*Place({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}), (RankPlace{5, 8}));
  EXPECT_EQ(*Place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), RankPlace());
}

TEST(RankPlace, IsThatOfTheInnermostLauncher) {
  EXPECT_EQ(*Place({{"RANK", "1"},
                    {"WORLD_SIZE", "4"},
                    {"SLURM_PROCID", "0"},
                    {"SLURM_STEP_NUM_TASKS", "2"}}),
            (RankPlace{1, 4}));
  EXPECT_EQ(*Place({{"RANK", ""}, {"WORLD_SIZE", ""}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
            (RankPlace{1, 2}));
}

TEST(RankPlace, IsAloneInABatchScriptAndAnArrayJob) {
  EXPECT_EQ(*Place({{"SLURM_PROCID", "0"},
                    {"SLURM_NTASKS", "4"},
                    {"SLURM_ARRAY_TASK_ID", "3"},
                    {"SLURM_ARRAY_TASK_COUNT", "10"}}),
            RankPlace());
}

TEST(RankPlace, ByOptionsComesFirst) {
  const std::map<std::string, std::string> launched = {{"RANK", "3"}, {"WORLD_SIZE", "4"}};
  MonitorOptions options;
  options.ranks_from_environment = false;
  EXPECT_EQ(*Place(launched, options), RankPlace());
  options = {};
  options.rank = 1;
  options.ranks = 2;
  EXPECT_EQ(*Place(launched, options), (RankPlace{1, 2}));
}

std::string Refused(const std::map<std::string, std::string>& environment,
                    const MonitorOptions& options = {}) {
  const auto place = Place(environment, options);
  EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(place.status().message());
}

TEST(RankPlace, RefusesInvalidPlaces) {
  EXPECT_THAT(Refused({{"RANK", "x"}, {"WORLD_SIZE", "4"}}),
              AllOf(HasSubstr("RANK = 'x': must be a number"),
                    HasSubstr("ranks_from_environment = false")));
  EXPECT_THAT(Refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
              HasSubstr("RANK = 4: must be from 0 to WORLD_SIZE - 1 = 3"));
  EXPECT_THAT(Refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE = 0"));
  EXPECT_THAT(Refused({{"PMI_SIZE", "4"}}), HasSubstr("PMI_RANK = (unset)"));
  EXPECT_THAT(Refused({{"RANK", "1"}}), HasSubstr("WORLD_SIZE = (unset)"));
  MonitorOptions options;
  options.rank = 2;
  EXPECT_THAT(Refused({}, options), HasSubstr("MonitorOptions.ranks = (unset)"));
  options.ranks = 2;
  EXPECT_THAT(Refused({}, options), HasSubstr("MonitorOptions.rank = 2: must be from 0 to"));
  options.ranks = -1;
  EXPECT_THAT(Refused({}, options), HasSubstr("MonitorOptions.ranks = -1"));
}

MonitorOptions Of(const std::string& run_dir, int64_t rank, int64_t ranks) {
  MonitorOptions options;
  options.run_dir = run_dir;
  options.rank = rank;
  options.ranks = ranks;
  return options;
}

TEST(EnterRank, GivesEachItsDirectory) {
  const TempDir dir;
  MonitorOptions options = Of(dir.path(), 12, 20);
  ASSERT_TRUE(EnterRank(options).ok());
  EXPECT_EQ(options.run_dir, dir.File("rank-0012"));
  EXPECT_EQ(options.rank, 12);
  EXPECT_EQ(options.ranks, 20);
}

TEST(EnterRank, LeavesATrainerAloneAsItIs) {
  const TempDir dir;
  MonitorOptions options = Of(dir.path(), 0, 1);
  ASSERT_TRUE(EnterRank(options).ok());
  EXPECT_EQ(options.run_dir, dir.path());
  EXPECT_EQ(options.rank, std::nullopt);
  EXPECT_EQ(options.ranks, std::nullopt);
}

TEST(EnterRank, LetsOneTrainerContinueTheRunOfSeveral) {
  const TempDir dir;
  std::filesystem::create_directory(RankDirectory(dir.path(), 0));
  MonitorOptions options = Of(dir.path(), 0, 1);
  ASSERT_TRUE(EnterRank(options).ok());
  EXPECT_EQ(options.run_dir, dir.File("rank-0000"));
  EXPECT_EQ(options.ranks, 1);
}

TEST(EnterRank, RefusesTheDirectoryOfATrainerAlone) {
  const TempDir dir;
  WriteFile(dir.File("journal.jsonl"), "");
  MonitorOptions options = Of(dir.path(), 1, 2);
  const absl::Status status = EnterRank(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir.path()));
}

}  // namespace rank_place_test
}  // namespace ptqwatch::internal
