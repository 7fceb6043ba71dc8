#include "journal/rank_directory.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace rank_directory_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TempDir;

TEST(RankDirectory, HasFourDigitsAtLeast) {
  EXPECT_EQ(RankDirectory("run", 3), "run/rank-0003");
  EXPECT_EQ(RankDirectory("run", 12345), "run/rank-12345");
}

TEST(RankDirectory, AreFoundByTheirNames) {
  const TempDir dir;
  for (const char* name : {"rank-0002", "rank-0010", "rank-12345", "rank-3", "rank-00003",
                           "rank-+001", "rank--001", "ranks", "rank-000x"}) {
    std::filesystem::create_directory(dir.File(name));
  }
  testing::WriteFile(dir.File("rank-0005"), "a file");
  EXPECT_THAT(RanksIn(dir.path()), ElementsAre(2, 10, 12345));
  EXPECT_THAT(RanksIn(dir.File("missing")), IsEmpty());
}

}  // namespace rank_directory_test
}  // namespace ptqwatch::internal
