#include "models/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ATen/ops/scalar_tensor.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/tensor.h"
#include "models/decoder.h"
#include "ptqwatch/offline/safetensors.h"
#include "support/temp_dir.h"
#include "unit/checkpoint/raw_safetensors.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace checkpoint_reader_test {

using ::testing::AllOf;
using testing::BytesOf;
using ::testing::HasSubstr;
using testing::TempDir;

class CheckpointReaderTest : public ::testing::Test {
 protected:
  CheckpointReaderTest() {
    testing::WriteFile(folder_.File("config.json"), testing::TinyConfig("llama"));
    const std::vector<TensorSource> tensors = {
        MakeTensorSource("bf16", TensorDtype::kBF16, {3}, BytesOf<uint16_t>({0x3f80, 0xc040, 0})),
        MakeTensorSource("f16", TensorDtype::kF16, {1, 2}, BytesOf<uint16_t>({0x3c00, 0xc000})),
        MakeTensorSource("f64", TensorDtype::kF64, {}, BytesOf<double>({0.25})),
        MakeTensorSource("i8", TensorDtype::kI8, {2}, std::string(2, '\1')),
        MakeTensorSource("rows", TensorDtype::kF32, {4, 2},
                         BytesOf<float>({0, 1, 10, 11, 20, 21, 30, 31}))};
    EXPECT_TRUE(WriteSafetensors(folder_.File("model.safetensors"), tensors).ok());
  }
  CheckpointReader Reader() {
    return CheckpointReader(CheckpointFiles::Open(folder_.path()).value());
  }

  TempDir folder_;
};

TEST_F(CheckpointReaderTest, ReadsEveryFloatTypeAsFloat32) {
  const CheckpointReader reader = Reader();
  EXPECT_TRUE(reader.Read("bf16").value().equal(at::tensor({1.0f, -3.0f, 0.0f})));
  EXPECT_TRUE(reader.Read("f16").value().equal(at::tensor({1.0f, -2.0f}).view({1, 2})));
  EXPECT_TRUE(reader.Read("f64").value().equal(at::scalar_tensor(0.25f)));
  EXPECT_EQ(reader.Shape("rows").value(), (std::vector<int64_t>{4, 2}));
}

TEST(CheckpointReader, UnpacksTheExpertsThatRowsName) {
  const TempDir folder;
  nlohmann::json config = nlohmann::json::parse(testing::TinyConfig("gpt_oss"));
  config["num_key_value_heads"] = 2;
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  testing::WriteFile(folder.File("config.json"), config.dump());
  std::string blocks;
  for (int i = 0; i < 3 * 5 * 2 * 16; ++i) blocks.push_back(static_cast<char>(i * 7 % 251));
  const std::vector<TensorSource> tensors = {
      MakeTensorSource("w_blocks", TensorDtype::kU8, {3, 5, 2, 16}, blocks),
      MakeTensorSource("w_scales", TensorDtype::kU8, {3, 5, 2}, std::string(30, '\x7e'))};
  ASSERT_TRUE(WriteSafetensors(folder.File("model.safetensors"), tensors).ok());
  const CheckpointReader reader(CheckpointFiles::Open(folder.path()).value());
  EXPECT_EQ(reader.Names(), std::vector<std::string>{"w"});
  EXPECT_EQ(reader.Shape("w").value(), (std::vector<int64_t>{3, 64, 5}));
  const at::Tensor all = reader.Read("w").value();
  EXPECT_TRUE(reader.ReadRows("w", {2, 0}).value().equal(at::stack({all[2], all[0]})));
}

TEST_F(CheckpointReaderTest, ReadsRowsInAnyOrder) {
  const CheckpointReader reader = Reader();
  const at::Tensor rows = reader.ReadRows("rows", {2, 3, 0, 0}).value();
  EXPECT_TRUE(rows.equal(at::tensor({20.f, 21.f, 30.f, 31.f, 0.f, 1.f, 0.f, 1.f}).view({4, 2})));
  EXPECT_TRUE(rows.equal(reader.WeightReader::ReadRows("rows", {2, 3, 0, 0}).value()));
  EXPECT_EQ(reader.ReadRows("rows", {}).value().sizes(), at::IntArrayRef({0, 2}));
}

TEST_F(CheckpointReaderTest, ADecoderThatDoesNotFitNamesTheFolder) {
  const CheckpointReader reader = Reader();
  const absl::Status status = Decoder::Create(reader.files().config(), reader).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(folder_.path()), HasSubstr("'rows' is left over")));
}

TEST_F(CheckpointReaderTest, NamesFileAndTensor) {
  const CheckpointReader reader = Reader();
  EXPECT_THAT(std::string(reader.Shape("i8").status().message()),
              AllOf(HasSubstr("'i8'"), HasSubstr("model.safetensors"), HasSubstr("I8[2]")));
  for (const absl::Status& status : {reader.Shape("x").status(), reader.Read("x").status(),
                                     reader.ReadRows("x", {0}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'x'"), HasSubstr(folder_.path())));
  }
  const absl::Status rows = reader.ReadRows("rows", {4}).status();
  EXPECT_EQ(rows.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(rows.message()), HasSubstr("'rows'"));
  std::filesystem::resize_file(folder_.File("model.safetensors"), 100);
  const absl::Status truncated = reader.Read("rows").status();
  EXPECT_EQ(truncated.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(truncated.message()),
              AllOf(HasSubstr("'rows'"), HasSubstr("model.safetensors")));
}

}  // namespace checkpoint_reader_test
}  // namespace ptqwatch::internal
