#include "trajectory/checkpoint_manifest.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"
#include "trajectory/checkpoint_list.h"
#include "unit/trajectory/trajectory_fixture.h"

namespace ptqwatch::internal {
namespace checkpoint_manifest_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeCheckpoint;
using testing::TempDir;
using testing::WriteFile;

class Manifest : public ::testing::Test {
 protected:
  Manifest() {
    for (const char* name : {"one", "two, \"quoted\"", "stage2-step7-tokens1B"}) {
      MakeCheckpoint(dir_.File(name));
    }
  }
  absl::StatusOr<std::vector<Checkpoint>> Parse(const std::string& csv) const {
    return ParseManifest(csv, dir_.File("list.csv"));
  }
  const TempDir dir_;
};

TEST_F(Manifest, GivesEveryColumn) {
  const auto parsed = Parse(
      "\xef\xbb\xbfpath,step,tokens,learning_rate,branch\r\n"
      "one,10,2000,1e-3,\r\n\r\n"
      "\"two, \"\"quoted\"\"\",20,,,stage 2\r\n"
      "stage2-step7-tokens1B,,,0,\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ((*parsed)[0].path, dir_.File("one"));
  EXPECT_EQ((*parsed)[0].step, 10);
  EXPECT_EQ((*parsed)[0].tokens, 2000);
  EXPECT_EQ((*parsed)[0].learning_rate, 1e-3);
  EXPECT_EQ((*parsed)[1].path, dir_.File("two, \"quoted\""));
  EXPECT_EQ((*parsed)[1].branch, "stage 2");
  EXPECT_EQ((*parsed)[1].learning_rate, std::nullopt);
  EXPECT_EQ((*parsed)[2].step, 7);
  EXPECT_EQ((*parsed)[2].tokens, 1'000'000'000);
  EXPECT_EQ((*parsed)[2].learning_rate, 0);
  EXPECT_EQ((*parsed)[2].branch, "") << "the column replaces what the name says";
}

TEST_F(Manifest, NeedsOnlyPaths) {
  const auto parsed = Parse("path\nstage2-step7-tokens1B");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(PlaceOf(parsed->front()), "branch stage2, step 7");
}

TEST_F(Manifest, IsReadFromItsFile) {
  WriteFile(dir_.File("list.csv"), "branch,path,step\n,one,2\n,\"two, \"\"quoted\"\"\",1\n");
  const auto list = ListCheckpoints({dir_.File("list.csv")});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->checkpoints[0].step, 1);
  EXPECT_EQ(list->checkpoints[1].path, dir_.File("one"));
}

TEST_F(Manifest, NamesLineColumnAndValueOfAMistake) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "empty"},
      {"step,tokens\n1,2\n", "no column path"},
      {"path,stepp\none,1\n", "unknown column 'stepp'; did you mean step?"},
      {"path,path\none,one\n", "column path occurs twice"},
      {"path,step\n", "lists no checkpoints"},
      {"path,step\none\n", "line 2: 1 fields in place of 2"},
      {"path,step\n\none,x\n", "line 3: step is 'x'"},
      {"path,step\none,-1\n", "step is '-1'"},
      {"path,step,tokens\none,1,1.5\n", "tokens is '1.5'"},
      {"path,step,learning_rate\none,1,fast\n", "learning_rate is 'fast'"},
      {"path,step,learning_rate\none,1,-1\n", "learning_rate is '-1'"},
      {"path,step,learning_rate\none,1,nan\n", "learning_rate is 'nan'"},
      {"path,step\n\"one,1\n", "line 2: a quote is not closed"},
      {"path,step\n\"one\"x,1\n", "text follows a closing quote"},
      {"path,step\n,1\n", "path is empty"},
      {"path,step\ngone,1\n", "gone"},
      {"path\none\n", "has no step"},
  };
  for (const auto& [csv, part] : mistakes) {
    const absl::Status status = Parse(csv).status();
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("list.csv"), HasSubstr(part)))
        << csv;
  }
}

}  // namespace checkpoint_manifest_test
}  // namespace ptqwatch::internal
