#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"
#include "unit/checkpoint/raw_safetensors.h"

namespace ptqwatch {
namespace safetensors_writer_test {

using testing::BytesOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TensorSource Floats(const std::string& name, const std::vector<float>& values) {
  return MakeTensorSource(name, TensorDtype::kF32, {static_cast<int64_t>(values.size())},
                          BytesOf(values));
}

TEST(WriteSafetensors, IsReadBack) {
  const TempDir folder;
  const std::string path = folder.File("m.safetensors");
  const absl::Status written = WriteSafetensors(
      path,
      {MakeTensorSource("bytes", TensorDtype::kU8, {3}, "abc"), Floats("z", {1, 2}),
       Floats("a \"quoted\" \\ name\n\xc3\xa9", {-4}),
       MakeTensorSource("doubles", TensorDtype::kF64, {1, 1}, BytesOf<double>({0.5})),
       MakeTensorSource("nothing", TensorDtype::kF64, {7, 0}, ""),
       MakeTensorSource("scalar", TensorDtype::kI64, {}, BytesOf<int64_t>({-9}))},
      {{"format", "pt"}, {"what", "\"\xe2\x82\xac\""}});
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("m.safetensors"));

  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), 6);
  EXPECT_THAT(*file->ReadFloats("z"), ElementsAre(1, 2));
  EXPECT_THAT(*file->ReadFloats("a \"quoted\" \\ name\n\xc3\xa9"), ElementsAre(-4));
  EXPECT_THAT(*file->ReadFloats("doubles"), ElementsAre(0.5));
  EXPECT_EQ(file->metadata().find("what")->second, "\"\xe2\x82\xac\"");
  std::string bytes(3, '\0');
  ASSERT_TRUE(file->ReadBytes("bytes", 0, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(bytes, "abc");

  // Wide elements first, then by name, and all of it aligned.
  EXPECT_EQ(file->Find("doubles")->offset, 0);
  EXPECT_EQ(file->Find("nothing")->offset, 8);
  EXPECT_EQ(file->Find("scalar")->offset, 8);
  EXPECT_EQ(file->Find("z")->offset, 20);
  EXPECT_EQ(file->Find("bytes")->offset, 28);
  const std::string content = testing::ReadFile(path);
  EXPECT_EQ(static_cast<uint8_t>(content[0]) % 8, 0);
  EXPECT_EQ(content.substr(content.size() - 3), "abc");
}

TEST(WriteSafetensors, TheSameTensorsGiveTheSameBytesInAnyOrder) {
  const TempDir folder;
  ASSERT_TRUE(
      WriteSafetensors(folder.File("1"), {Floats("a", {1}), Floats("b", {2})}, {{"k", "v"}}).ok());
  ASSERT_TRUE(
      WriteSafetensors(folder.File("2"), {Floats("b", {2}), Floats("a", {1})}, {{"k", "v"}}).ok());
  EXPECT_EQ(testing::ReadFile(folder.File("1")), testing::ReadFile(folder.File("2")));
}

TEST(WriteSafetensors, CopiesTensorsOfAnotherFileInPieces) {
  const TempDir folder;
  std::vector<float> many(700'001);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  ASSERT_TRUE(WriteSafetensors(folder.File("1"), {Floats("many", many)}).ok());
  absl::StatusOr<SafetensorsFile> first = SafetensorsFile::Open(folder.File("1"));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(WriteSafetensors(folder.File("2"), {MakeTensorSource(*first, "many")}).ok());
  EXPECT_EQ(testing::ReadFile(folder.File("1")), testing::ReadFile(folder.File("2")));
}

TEST(WriteSafetensors, MayReplaceTheFileItCopiesFrom) {
  const TempDir folder;
  const std::string path = folder.File("m");
  ASSERT_TRUE(WriteSafetensors(path, {Floats("a", {1, 2, 3})}).ok());
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(WriteSafetensors(path, {MakeTensorSource(*file, "a"), Floats("b", {4})}).ok());
  absl::StatusOr<SafetensorsFile> again = SafetensorsFile::Open(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(*again->ReadFloats("a"), ElementsAre(1, 2, 3));
}

TEST(WriteSafetensors, GivesTheFileOrdinaryPermissions) {
  const TempDir folder;
  ASSERT_TRUE(WriteSafetensors(folder.File("m"), {}).ok());
  testing::WriteFile(folder.File("plain"), "");
  struct stat ours {};
  struct stat plain {};
  ASSERT_EQ(stat(folder.File("m").c_str(), &ours), 0);
  ASSERT_EQ(stat(folder.File("plain").c_str(), &plain), 0);
  EXPECT_EQ(ours.st_mode, plain.st_mode);
}

// A refusal leaves the folder as it was.
void ExpectRefused(const std::vector<TensorSource>& tensors, const TensorMetadata& metadata,
                   absl::StatusCode code, const std::string& what) {
  const TempDir folder;
  const std::string path = folder.File("m.safetensors");
  testing::WriteFile(path, "old");
  const absl::Status status = WriteSafetensors(path, tensors, metadata);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(Message(status), HasSubstr(what));
  EXPECT_THAT(Message(status), HasSubstr(path));
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("m.safetensors"));
  EXPECT_EQ(testing::ReadFile(path), "old");
}

TEST(WriteSafetensors, RefusesWhatTheFormatCannotHold) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused({Floats("a", {1}), Floats("a", {1})}, {}, invalid, "'a' occurs twice");
  ExpectRefused({Floats("\xff", {1})}, {}, invalid, "\\xff");
  ExpectRefused({Floats("__metadata__", {1})}, {}, invalid, "__metadata__");
  ExpectRefused({}, {{"\xc0", "x"}}, invalid, "metadata");
  ExpectRefused({}, {{"x", "\xc0"}}, invalid, "metadata 'x'");
  ExpectRefused({MakeTensorSource("a", TensorDtype::kF32, {-1}, "")}, {}, invalid, "'a'");
  ExpectRefused({MakeTensorSource("a", TensorDtype::kF32, {1L << 40, 1L << 40}, "")}, {}, invalid,
                "'a'");
}

TEST(WriteSafetensors, LeavesNothingBehindWhenASourceFails) {
  TensorSource broken = Floats("b", std::vector<float>(1'000'000));
  broken.read = [](int64_t offset, absl::Span<char>) {
    return offset == 0 ? absl::OkStatus() : absl::CancelledError("stopped in the middle");
  };
  ExpectRefused({Floats("a", {1}), broken}, {}, absl::StatusCode::kCancelled, "stopped");
  TensorSource shorter = MakeTensorSource("s", TensorDtype::kF32, {4}, "too short");
  ExpectRefused({shorter}, {}, absl::StatusCode::kInvalidArgument, "'s'");
}

// The same way out as on a full disk, which a test cannot have.
TEST(WriteSafetensors, LeavesNothingBehindWhenTheSystemTakesNoMore) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 1 << 16, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ExpectRefused({Floats("a", std::vector<float>(100'000))}, {}, absl::StatusCode::kOutOfRange,
                "File too large");
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, old_handler);
}

TEST(WriteSafetensors, NamesAFolderThatCannotBeWritten) {
  const TempDir folder;
  testing::WriteFile(folder.File("file"), "");
  for (const std::string& path :
       {folder.File("none/m"), folder.File("file/m"), std::string("/proc/ptqwatch/m"),
        folder.path() + "/", std::string()}) {
    const absl::Status status = WriteSafetensors(path, {});
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), HasSubstr(path));
  }
  // A folder has the name already.
  std::filesystem::create_directory(folder.File("taken"));
  EXPECT_FALSE(WriteSafetensors(folder.File("taken"), {}).ok());
  EXPECT_EQ(FilesIn(folder.path()).size(), 2);
  if (geteuid() != 0) {
    std::filesystem::permissions(
        folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_EQ(WriteSafetensors(folder.File("m"), {}).code(), absl::StatusCode::kPermissionDenied);
    std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  }
}

TEST(WriteCheckpoint, WritesBothFilesAndTheFolder) {
  const TempDir folder;
  const std::string out = folder.File("out");
  ASSERT_TRUE(WriteCheckpoint(out, {Floats("a", {1})}, {}, "{}").ok());
  EXPECT_THAT(FilesIn(out), ::testing::UnorderedElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(testing::ReadFile(out + "/config.json"), "{}");
  ASSERT_TRUE(WriteCheckpoint(out, {Floats("a", {2})}, {}, "[]").ok());
  EXPECT_EQ(testing::ReadFile(out + "/config.json"), "[]");
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(out + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file->ReadFloats("a"), ElementsAre(2));
}

TEST(WriteCheckpoint, LeavesTheFolderAsItWasWhenASourceFails) {
  const TempDir folder;
  TensorSource broken = Floats("b", {1});
  broken.read = [](int64_t, absl::Span<char>) { return absl::CancelledError("stopped"); };
  const std::string out = folder.File("out");
  EXPECT_EQ(WriteCheckpoint(out, {broken}, {}, "{}").code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(FilesIn(folder.path()).empty());
  ASSERT_TRUE(WriteCheckpoint(out, {Floats("a", {1})}, {}, "old").ok());
  EXPECT_FALSE(WriteCheckpoint(out, {broken}, {}, "new").ok());
  EXPECT_EQ(FilesIn(out).size(), 2);
  EXPECT_EQ(testing::ReadFile(out + "/config.json"), "old");
  EXPECT_FALSE(WriteCheckpoint(folder.File("no/folder"), {}, {}, "{}").ok());
}

}  // namespace safetensors_writer_test
}  // namespace ptqwatch
