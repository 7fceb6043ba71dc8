#include "probes/probe_state_file.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/zeros.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace probe_state_file_test {

using ::testing::HasSubstr;
using testing::ReadFile;
using testing::WriteFile;

struct ProbeStateFileTest : ::testing::Test {
  ProbeStateFileTest() : path(directory.File(kStateFileName)) {
    state.sequence = 12;
    state.vectors["top.0"] = {at::arange(6, at::kFloat)};
    state.vectors["preconditioned.0"] = {at::arange(6, at::kFloat) / 7};
  }
  absl::Status Write() { return ProbeStateFile::Write(directory.path(), "run", "print", state); }
  static VectorSpace Space(int64_t size, at::ScalarType dtype = at::kFloat) {
    return VectorSpace({{"w", at::zeros({size})}}, dtype, at::Device(at::kCPU));
  }
  absl::Status Open() { return ProbeStateFile::Open(directory.path()).status(); }
  std::string Error() { return std::string(Open().message()); }
  void WriteMetadata(const TensorMetadata& metadata) {
    ASSERT_TRUE(WriteSafetensors(path, {}, metadata).ok());
  }

  testing::TempDir directory;
  std::string path;
  ProbeState state;
};

TEST_F(ProbeStateFileTest, ReadsWhatWasWritten) {
  ASSERT_TRUE(Write().ok());
  auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->run_id(), "run");
  EXPECT_EQ(file->fingerprint(), "print");
  EXPECT_EQ(file->sequence(), 12);
  auto read = file->Read(Space(6));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->sequence, 12);
  ASSERT_EQ(read->vectors.size(), 2u);
  for (const auto& [name, vector] : state.vectors) {
    EXPECT_TRUE(at::equal(read->vectors.at(name).elements, vector.elements)) << name;
  }
}

TEST_F(ProbeStateFileTest, IsForItsOwnerAloneAsTheJournalIs) {
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
}

TEST_F(ProbeStateFileTest, KeepsDoubles) {
  state.vectors = {{"top.0", {at::arange(3, at::kDouble) / 7}}};
  ASSERT_TRUE(Write().ok());
  auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  auto read = file->Read(Space(3, at::kDouble));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(at::equal(read->vectors.at("top.0").elements, state.vectors.at("top.0").elements));
}

// The writer's thread has not entered the monitor's stream: a copy from a device would run on the
// trainer's.
TEST_F(ProbeStateFileTest, RefusesVectorsThatAreNotOnTheCpu) {
  state.vectors["top.0"] = {at::zeros({6}, at::TensorOptions().device(at::kMeta))};
  const absl::Status status = Write();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("vector 'top.0' on meta"));
}

TEST_F(ProbeStateFileTest, TakesAStateWithoutVectors) {
  state.vectors.clear();
  ASSERT_TRUE(Write().ok());
  auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  auto read = file->Read(Space(0));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->sequence, 12);
  EXPECT_TRUE(read->vectors.empty());
}

TEST_F(ProbeStateFileTest, RefusesVectorsOfAnotherSpace) {
  ASSERT_TRUE(Write().ok());
  auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status status = file->Read(Space(7)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("F32[6], not of dimension 7"));
  EXPECT_FALSE(file->Read(Space(6, at::kDouble)).ok());
}

TEST_F(ProbeStateFileTest, GoesOnReadingWhatItOpenedWhileANewOneIsWritten) {
  ASSERT_TRUE(Write().ok());
  auto file = ProbeStateFile::Open(directory.path());
  ASSERT_TRUE(file.ok()) << file.status();
  state.sequence = 13;
  state.vectors["top.0"] = {at::zeros({6})};
  ASSERT_TRUE(Write().ok());
  auto read = file->Read(Space(6));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->sequence, 12);
  EXPECT_EQ(read->vectors.at("top.0").elements[5].item<float>(), 5);
}

TEST_F(ProbeStateFileTest, SaysWhatIsWrong) {
  EXPECT_EQ(Open().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Write().ok());
  const std::string whole = ReadFile(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    EXPECT_EQ(Open().code(), absl::StatusCode::kDataLoss) << size;
  }
  WriteFile(path, "no safetensors file at all");
  EXPECT_THAT(Error(), HasSubstr("state.safetensors"));

  TensorMetadata good = {{"format", "ptqwatch.probe_state"},
                         {"version", "1"},
                         {"run_id", "run"},
                         {"fingerprint", "print"},
                         {"sequence", "3"}};
  WriteMetadata(good);
  EXPECT_TRUE(Open().ok()) << Open();
  const auto with = [&](const char* key, const char* value) {
    TensorMetadata metadata = good;
    metadata[key] = value;
    WriteMetadata(metadata);
    return Error();
  };
  EXPECT_THAT(with("format", "pt"), HasSubstr("is not a probe state"));
  EXPECT_THAT(with("version", "2"), HasSubstr("has version 2; this program knows version 1"));
  EXPECT_THAT(with("version", ""), HasSubstr("is not a probe state"));
  EXPECT_THAT(with("sequence", "0"), HasSubstr("its sequence is '0'"));
  EXPECT_THAT(with("sequence", "-4"), HasSubstr("its sequence is '-4'"));
  EXPECT_THAT(with("sequence", "9223372036854775807"), HasSubstr("damaged"));
  EXPECT_THAT(with("sequence", "99999999999999999999"), HasSubstr("damaged"));
  EXPECT_THAT(with("run_id", ""), HasSubstr("names no run"));
  WriteMetadata({});
  EXPECT_THAT(Error(), HasSubstr("is not a probe state"));
}

TEST_F(ProbeStateFileTest, NamesThePathThatCannotBeWritten) {
  // Root may write to any directory, but not even root can write over one.
  std::filesystem::create_directories(path + "/occupied");
  const absl::Status status = Write();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_FALSE(ProbeStateFile::Write(directory.path() + "/gone", "run", "print", state).ok());
}

}  // namespace probe_state_file_test
}  // namespace ptqwatch::internal
