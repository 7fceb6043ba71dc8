#include "study_dir.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "program.h"
#include "support/temp_dir.h"

namespace ptqwatch::examples {
namespace study_dir_test {

namespace fs = std::filesystem;

std::string Refusal(const std::string& path, const StudySettings& settings) {
  try {
    StudyDir(path).Take(settings, "text");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(StudyDir, KeepsWhatIsFinishedAlone) {
  const testing::TempDir temp;
  const std::string path = temp.path() + "/study";
  {
    StudyDir dir(path);
    dir.Take(SettingsOf("tiny"), "some text");
    EXPECT_EQ(ReadFile(dir.text()), "some text");
    for (const char* id : {"a", "b"}) fs::create_directories(dir.part(id));
    dir.KeepSeconds("a", 2.5);
    dir.Finish("a");
    EXPECT_TRUE(dir.IsFinished("a"));
    EXPECT_FALSE(dir.IsFinished("b"));
    EXPECT_DOUBLE_EQ(dir.SecondsOf("a"), 2.5);
    EXPECT_EQ(dir.SecondsOf("b"), 0);
  }
}

TEST(StudyDir, RefusesOtherSettings) {
  const testing::TempDir temp;
  const std::string path = temp.path() + "/study";
  fs::create_directories(path);
  std::ofstream(path + "/study.json") << ToJson(SettingsOf("tiny")).dump();
  StudySettings other = SettingsOf("tiny");
  other.seeds = 5;
  EXPECT_EQ(Refusal(path, other), "--dir " + path + ": was made otherwise: seeds is 1, not 5");
  std::ofstream(path + "/study.json") << "{";
  EXPECT_EQ(Refusal(path, SettingsOf("tiny")), "--dir " + path + ": study.json cannot be read");
}

TEST(StudyDir, RemovesWhatWasNotFinished) {
  const testing::TempDir temp;
  const std::string path = temp.path() + "/study";
  fs::create_directories(path + "/legs/a.part");
  fs::create_directories(path + "/legs/b");
  std::ofstream(path + "/study.json") << ToJson(SettingsOf("tiny")).dump();
  EXPECT_EQ(Refusal(path, SettingsOf("tiny")), "");
  EXPECT_FALSE(fs::exists(path + "/legs/a.part"));
  EXPECT_TRUE(fs::exists(path + "/legs/b"));
}

TEST(StudyDir, RefusesAFolderOfSomethingElse) {
  const testing::TempDir temp;
  std::ofstream(temp.path() + "/precious") << "x";
  EXPECT_EQ(Refusal(temp.path(), SettingsOf("tiny")),
            "--dir " + temp.path() + ": is no study's, and has precious in it");
  EXPECT_EQ(Refusal(temp.path() + "/precious/study", SettingsOf("tiny")).find("--dir "), 0u);
  EXPECT_TRUE(fs::exists(temp.path() + "/precious"));
}

}  // namespace study_dir_test
}  // namespace ptqwatch::examples
