#include "models/packed_tensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace packed_tensors_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int64_t kExperts = 3, kRows = 70, kGroups = 2;

// Bytes that differ from each other in both halves.
std::string Bytes(int64_t count, int64_t step) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i * step % 251));
  return bytes;
}

class PackedTensorsTest : public ::testing::Test {
 protected:
  void Write(std::vector<TensorSource> tensors) {
    files_.clear();
    ASSERT_TRUE(WriteSafetensors(folder_.File("x.safetensors"), tensors).ok());
    files_.push_back(SafetensorsFile::Open(folder_.File("x.safetensors")).value());
    stored_.clear();
    for (const TensorSource& tensor : tensors)
      stored_[tensor.name] = {.file = 0, .name = tensor.name};
  }
  TensorSource Blocks(std::string name = "w_blocks") const {
    return MakeTensorSource(std::move(name), TensorDtype::kU8, {kExperts, kRows, kGroups, 16},
                            blocks_);
  }
  TensorSource Scales(std::string scales) const {
    return MakeTensorSource("w_scales", TensorDtype::kU8, {kExperts, kRows, kGroups},
                            std::move(scales));
  }
  std::string Refusal() {
    const absl::Status status = TakePacked(files_, /*sharded=*/false, stored_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string blocks_ = Bytes(kExperts * kRows * kGroups * 16, 7);
  TempDir folder_;
  std::vector<SafetensorsFile> files_;
  StoredTensors stored_;
};

TEST_F(PackedTensorsTest, ReadsEveryNumberAtItsPlace) {
  const std::string scales = Bytes(kExperts * kRows * kGroups, 3);
  Write({Blocks(), Scales(scales),
         MakeTensorSource("bias", TensorDtype::kF32, {1}, std::string(4, 'a'))});
  const auto packed = TakePacked(files_, /*sharded=*/false, stored_);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_EQ(packed->size(), 1u);
  EXPECT_EQ(stored_.size(), 2u);
  EXPECT_TRUE(stored_.contains("w"));
  const PackedTensor& tensor = packed->at("w");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{kExperts, 32 * kGroups, kRows}));
  std::vector<float> read(2 * 32 * kGroups * kRows);
  ASSERT_TRUE(ReadPacked(files_, tensor, 1, 2, read.data()).ok());
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t expert = 1; expert < kExperts; ++expert) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t place = 0; place < 32 * kGroups; ++place) {
        const int64_t group = (expert * kRows + row) * kGroups + place / 32;
        const auto byte =
            static_cast<unsigned char>(blocks_[static_cast<size_t>(group * 16 + place % 32 / 2)]);
        const int code = place % 2 == 0 ? byte % 16 : byte / 16;
        const auto scale = static_cast<unsigned char>(scales[static_cast<size_t>(group)]);
        const double expected = std::ldexp(magnitudes[code % 8], scale - 127) * (code < 8 ? 1 : -1);
        const float found =
            read[static_cast<size_t>(((expert - 1) * 32 * kGroups + place) * kRows + row)];
        ASSERT_EQ(found, static_cast<float>(expected)) << expert << " " << row << " " << place;
        ASSERT_EQ(std::signbit(found), code >= 8);
      }
    }
  }
}

TEST_F(PackedTensorsTest, AScaleOf255IsNotFinite) {
  Write({Blocks(), Scales(std::string(kExperts * kRows * kGroups, '\xff'))});
  const PackedTensor tensor = TakePacked(files_, /*sharded=*/false, stored_).value().at("w");
  std::vector<float> read(32 * kGroups * kRows);
  ASSERT_TRUE(ReadPacked(files_, tensor, 0, 1, read.data()).ok());
  for (const float value : read) EXPECT_FALSE(std::isfinite(value));
}

TEST_F(PackedTensorsTest, RefusesShardsOfRanks) {
  Write({Blocks(), Scales(std::string(kExperts * kRows * kGroups, 'a'))});
  const absl::Status status = TakePacked(files_, /*sharded=*/true, stored_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'w_blocks': MXFP4 is not read from shards"));
}

TEST_F(PackedTensorsTest, RefusesWhatIsNoPair) {
  const std::string scales(kExperts * kRows * kGroups, 'a');
  Write({Blocks()});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("'w_blocks'"), HasSubstr("no 'w_scales'")));
  Write({Scales(scales)});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("'w_scales'"), HasSubstr("no 'w_blocks'")));
  Write({Blocks(), Scales(scales),
         MakeTensorSource("w", TensorDtype::kF32, {1}, std::string(4, 'a'))});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("'w_blocks'"), HasSubstr("'w' are both there")));
  Write({MakeTensorSource("w_blocks", TensorDtype::kU8, {2, 2, 8}, std::string(32, 'a')),
         MakeTensorSource("w_scales", TensorDtype::kU8, {2, 2}, "aaaa")});
  EXPECT_THAT(Refusal(), HasSubstr("'w_blocks' is U8[2, 2, 8]"));
  Write({MakeTensorSource("w_blocks", TensorDtype::kU8, {2, 0, 2, 16}, ""),
         MakeTensorSource("w_scales", TensorDtype::kU8, {2, 0, 2}, "")});
  EXPECT_THAT(Refusal(), HasSubstr("'w_blocks' is U8[2, 0, 2, 16]"));
  Write({Blocks(), MakeTensorSource("w_scales", TensorDtype::kU8, {2, 2}, "aaaa")});
  EXPECT_THAT(Refusal(), HasSubstr("'w_scales' is U8[2, 2]"));
}

}  // namespace packed_tensors_test
}  // namespace ptqwatch::internal
