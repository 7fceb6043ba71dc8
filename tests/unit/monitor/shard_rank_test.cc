#include "monitor/shard_rank.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

namespace ptqwatch::internal {
namespace shard_rank_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<ShardRank> Find(RankPlace place, const Variables& environment,
                               const std::string& run_dir = "/runs/7") {
  return FindShardRank(place, run_dir, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(ShardRank, IsOnOneHostUnlessTheLauncherSaysOtherwise) {
  const ShardRank first = *Find({0, 4}, {});
  EXPECT_EQ(first.place.directory, "/runs/7/shards");
  EXPECT_EQ(first.place.rank, 0);
  EXPECT_EQ(first.place.local_ranks, 4);
  EXPECT_TRUE(first.measures);
  EXPECT_EQ(first.place.hosts, 1);
  const ShardRank third = *Find({2, 4}, {});
  EXPECT_EQ(third.place.local_ranks, 4);
  EXPECT_FALSE(third.measures);
}

TEST(ShardRank, IsThatOfTheLauncher) {
  const Variables launchers[] = {
      {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}},
      {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
      {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
      {{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "2"}},
      {{"LOCAL_RANK", ""}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "2"}},
  };
  for (const Variables& variables : launchers) {
    const ShardRank rank = *Find({4, 6}, variables);
    EXPECT_EQ(rank.place.local_ranks, 2);
    EXPECT_TRUE(rank.measures);
    EXPECT_EQ(rank.place.host, 2);
    EXPECT_EQ(rank.place.hosts, 3);
  }
  EXPECT_EQ(Find({4, 6}, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "1"}})
                ->place.host,
            1);
}

TEST(ShardRank, HasAJobOfItsLaunchAndCall) {
  const Variables variables = {{"MASTER_PORT", "29500"}};
  const std::string job = Find({0, 2}, variables)->place.job;
  EXPECT_THAT(job, HasSubstr("29500"));
  EXPECT_NE(Find({0, 2}, variables)->place.job, job) << "a second monitor of the same rank";
}

TEST(ShardRank, NamesWhatIsWrong) {
  const auto error = [](RankPlace place, const Variables& variables) {
    const absl::Status status = Find(place, variables).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  EXPECT_THAT(std::string(Find({0, 2}, {}, "").status().message()), HasSubstr("run_dir is empty"));
  for (const auto& [rank, ranks] : {std::pair("2", "2"), std::pair("0", "3"), std::pair("-1", "2"),
                                    std::pair("one", "2"), std::pair("0", "0")}) {
    EXPECT_THAT(error({0, 4}, {{"LOCAL_RANK", rank}, {"LOCAL_WORLD_SIZE", ranks}}),
                AllOf(HasSubstr(std::string("LOCAL_RANK = '") + rank + "'"),
                      HasSubstr(std::string("LOCAL_WORLD_SIZE = '") + ranks + "' of 4 ranks")));
  }
  EXPECT_THAT(error({0, 4}, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "2"}}),
              HasSubstr("GROUP_RANK = '2': must be from 0 to 1"));
  // Dealt to the hosts in turn.
  EXPECT_THAT(error({2, 4}, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}),
              HasSubstr("not numbered host by host: set GROUP_RANK"));
}

TEST(ShardRank, MakesTheOptionsThoseOfItsHost) {
  MonitorOptions options;
  options.run_dir = "/runs/7";
  options.ranks_from_environment = false;
  options.rank = 1;
  options.ranks = 2;
  options.serve = ServeOptions();
  const auto shard = EnterShard(options);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_FALSE(shard->measures);
  EXPECT_FALSE(options.rank || options.ranks || options.serve);
  EXPECT_FALSE(options.ranks_from_environment);
  options.rank = 5;
  EXPECT_FALSE(EnterShard(options).ok());
}

}  // namespace shard_rank_test
}  // namespace ptqwatch::internal
