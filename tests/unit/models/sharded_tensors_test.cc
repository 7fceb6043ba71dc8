#include "models/sharded_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "support/temp_dir.h"
#include "unit/checkpoint/raw_safetensors.h"

namespace ptqwatch::internal {
namespace sharded_tensors_test {

using ::testing::AllOf;
using testing::BytesOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int64_t kRows = 7;
constexpr int64_t kCols = 6;

// Rows [top, bottom) and columns [left, right) of a matrix [7, 6] of the numbers 0 to 41.
struct Part {
  int64_t top = 0;
  int64_t bottom = kRows;
  int64_t left = 0;
  int64_t right = kCols;
};

class ShardedTensorsTest : public ::testing::Test {
 protected:
  // Writes the file of the next rank.
  void Write(const Part& part, const std::string& name = "w") {
    std::vector<float> values;
    for (int64_t row = part.top; row < part.bottom; ++row) {
      for (int64_t col = part.left; col < part.right; ++col) {
        values.push_back(static_cast<float>(row * kCols + col));
      }
    }
    WriteFile(MakeTensorSource(name, TensorDtype::kF32,
                               {part.bottom - part.top, part.right - part.left}, BytesOf(values)),
              StrCat(R"({")", name, R"(": {"saved_offsets": [)", part.top, ", ", part.left, "]}}"));
  }
  void WriteFile(TensorSource source, const std::string& info) {
    const std::string path = folder_.File(StrCat("shard-", files_.size(), ".safetensors"));
    const TensorMetadata metadata = {{"DCP_SHARDING_INFO", info}, {"DCP_VERSION", "1.0"}};
    ASSERT_TRUE(WriteSafetensors(path, {std::move(source)}, metadata).ok());
    files_.push_back(SafetensorsFile::Open(path).value());
  }
  std::vector<float> Read(int64_t first, int64_t count) {
    const auto tensors = PutTogether(files_);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    if (!tensors.ok()) return {};
    std::vector<float> values(static_cast<size_t>(count), -1);
    const absl::Status read =
        ReadSharded(files_, "w", tensors->at("w"), first, count, values.data());
    EXPECT_TRUE(read.ok()) << read;
    return values;
  }
  void ExpectWhole() {
    for (const auto& [first, count] : {std::pair(0, 42), {0, 6}, {12, 12}, {9, 20}, {41, 1}}) {
      std::vector<float> expected(static_cast<size_t>(count));
      std::iota(expected.begin(), expected.end(), static_cast<float>(first));
      EXPECT_EQ(Read(first, count), expected) << first << ", " << count;
    }
  }
  std::string Refusal(absl::StatusCode code) {
    const absl::Status status = PutTogether(files_).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  TempDir folder_;
  std::vector<SafetensorsFile> files_;
};

TEST_F(ShardedTensorsTest, PutsRowsTogether) {
  // FSDP over four ranks, the last one without rows.
  for (const int64_t top : {0, 3, 6, 7}) Write({.top = top, .bottom = std::min(top + 3, kRows)});
  const auto tensors = PutTogether(files_);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_THAT(tensors->at("w").shape, ElementsAre(kRows, kCols));
  EXPECT_EQ(tensors->at("w").boxes.size(), 3u);
  ExpectWhole();
}

TEST_F(ShardedTensorsTest, PutsColumnsTogether) {
  for (const int64_t left : {4, 0, 2}) Write({.left = left, .right = left + 2});
  ExpectWhole();
}

TEST_F(ShardedTensorsTest, PutsBoxesOfAMeshTogether) {
  for (const int64_t top : {0, 4}) {
    for (const int64_t left : {0, 3}) {
      Write({.top = top, .bottom = top == 0 ? 4 : kRows, .left = left, .right = left + 3});
    }
  }
  ExpectWhole();
}

TEST_F(ShardedTensorsTest, CountsReplicasOnce) {
  for (const int64_t top : {0, 4, 0, 4}) Write({.top = top, .bottom = top == 0 ? 4 : kRows});
  EXPECT_EQ(PutTogether(files_)->at("w").boxes.size(), 2u);
  ExpectWhole();
}

TEST_F(ShardedTensorsTest, TakesOtherDimensions) {
  WriteFile(MakeTensorSource("w", TensorDtype::kF32, {}, BytesOf<float>({3})),
            R"({"w": {"saved_offsets": []}})");
  EXPECT_THAT(Read(0, 1), ElementsAre(3));
  files_.clear();
  WriteFile(MakeTensorSource("w", TensorDtype::kF32, {3}, BytesOf<float>({2, 3, 4})),
            R"({"w": {"saved_offsets": [2]}})");
  WriteFile(MakeTensorSource("w", TensorDtype::kF32, {2}, BytesOf<float>({0, 1})),
            R"({"w": {"saved_offsets": [0]}})");
  EXPECT_THAT(Read(1, 3), ElementsAre(1, 2, 3));
}

TEST_F(ShardedTensorsTest, PutsExpertsCutInTheirSecondDimensionTogether) {
  // [2, 4, 3], cut into [2, 2, 3].
  for (const int64_t begin : {0, 2}) {
    std::vector<float> values;
    for (const int64_t expert : {0, 1}) {
      for (int64_t i = 0; i < 6; ++i) {
        values.push_back(static_cast<float>(expert * 12 + begin * 3 + i));
      }
    }
    WriteFile(MakeTensorSource("w", TensorDtype::kF32, {2, 2, 3}, BytesOf(values)),
              StrCat(R"({"w": {"saved_offsets": [0, )", begin, ", 0]}}"));
  }
  std::vector<float> expected(24);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(Read(0, 24), expected);
  EXPECT_THAT(Read(11, 3), ElementsAre(11, 12, 13));
}

TEST_F(ShardedTensorsTest, MissesAShard) {
  Write({.top = 0, .bottom = 3});
  Write({.top = 5, .bottom = 7});
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              AllOf(HasSubstr("30 elements of 'w', which is [7, 6]; a file is missing"),
                    HasSubstr("shard-0.safetensors")));
}

TEST_F(ShardedTensorsTest, RefusesOverlaps) {
  Write({.top = 0, .bottom = 4});
  Write({.top = 3, .bottom = 7});
  EXPECT_THAT(
      Refusal(absl::StatusCode::kDataLoss),
      AllOf(HasSubstr("shard-1.safetensors"), HasSubstr("'w' from [3, 0] on, which overlaps"),
            HasSubstr("shard-0.safetensors")));
}

TEST_F(ShardedTensorsTest, RefusesWrongOffsets) {
  for (const char* info :
       {R"({})", R"({"w": 1})", R"({"w": {}})", R"({"w": {"saved_offsets": [0]}})",
        R"({"w": {"saved_offsets": [0, -1]}})", R"({"w": {"saved_offsets": [0, 1e300]}})",
        R"({"w": {"saved_offsets": [0, 18446744073709551615]}})"}) {
    files_.clear();
    WriteFile(MakeTensorSource("w", TensorDtype::kF32, {1, 1}, std::string(4, '\0')), info);
    EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("tensor 'w'")) << info;
  }
  files_.clear();
  WriteFile(MakeTensorSource("w", TensorDtype::kF32, {1, 1}, std::string(4, '\0')), "not JSON");
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("has no DCP_SHARDING_INFO"));
  files_.clear();
  WriteFile(MakeTensorSource("w", TensorDtype::kF32, {1, 1}, std::string(4, '\0')),
            R"({"w": {"saved_offsets": [1125899906842624, 1125899906842624]}})");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("a file is missing"));
}

TEST_F(ShardedTensorsTest, RefusesPartsOfOtherTypesOrDimensions) {
  Write({.top = 0, .bottom = 4});
  WriteFile(MakeTensorSource("w", TensorDtype::kBF16, {3, 6}, std::string(36, '\0')),
            R"({"w": {"saved_offsets": [4, 0]}})");
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("as BF16[3, 6]"));
}

}  // namespace sharded_tensors_test
}  // namespace ptqwatch::internal
