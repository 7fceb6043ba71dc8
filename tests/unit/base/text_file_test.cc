#include "base/text_file.h"

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace text_file_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

TEST(ReadTextFile, ReadsEveryByteThroughALink) {
  TempDir dir;
  const std::string text = std::string(200'000, 'x') + std::string("\0\r\nend", 6);
  WriteFile(dir.File("text"), text);
  std::filesystem::create_symlink(dir.File("text"), dir.File("link"));
  EXPECT_EQ(ReadTextFile(dir.File("link")).value(), text);
  WriteFile(dir.File("empty"), "");
  EXPECT_EQ(ReadTextFile(dir.File("empty")).value(), "");
}

TEST(ReadTextFile, NamesTheFileThatItCannotRead) {
  TempDir dir;
  const absl::Status missing = ReadTextFile(dir.File("missing")).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir.File("missing")));
  const absl::Status folder = ReadTextFile(dir.path()).status();
  EXPECT_THAT(std::string(folder.message()), AllOf(HasSubstr(dir.path()), HasSubstr("directory")));
}

TEST(ReadTextFile, RefusesAFileThatIsTooLarge) {
  TempDir dir;
  WriteFile(dir.File("large"), "");
  std::filesystem::resize_file(dir.File("large"), kMaxTextBytes + 1);  // takes no room on the disk
  EXPECT_TRUE(absl::IsResourceExhausted(ReadTextFile(dir.File("large")).status()));
}

}  // namespace text_file_test
}  // namespace ptqwatch::internal
