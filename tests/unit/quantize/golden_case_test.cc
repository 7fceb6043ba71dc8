#include "golden/golden_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "golden/golden_compare.h"
#include "golden/golden_file.h"
#include "ptqwatch/quantizer.h"
#include "support/temp_dir.h"
#include "unit/checkpoint/raw_safetensors.h"

namespace ptqwatch::testing {
namespace golden_case_test {

using ::testing::HasSubstr;

const char kGptq[] = PTQWATCH_GOLDEN_DATA "/gptq/gptq_m1_b2_g32_asym_act.safetensors";
const char kRtn[] = PTQWATCH_GOLDEN_DATA "/rtn/rtn_b2_pc_sym.safetensors";
const char kAwq[] = PTQWATCH_GOLDEN_DATA "/awq/awq_dead_b4_g32_asym.safetensors";
const char kNf4[] = PTQWATCH_GOLDEN_DATA "/nf4/nf4_edges.safetensors";
const char kLlmInt8[] = PTQWATCH_GOLDEN_DATA "/llmint8/llmint8_plain.safetensors";

const char kMx[] = PTQWATCH_GOLDEN_DATA "/fp/fp_e2m1_mx_rceil_edge.safetensors";
const char kNv[] = PTQWATCH_GOLDEN_DATA "/fp/fp_e2m1_nv_edge.safetensors";
const char kFpBlock[] = PTQWATCH_GOLDEN_DATA "/fp/fp_e4m3_block_edge.safetensors";
const char kGptqFp[] = PTQWATCH_GOLDEN_DATA "/fp/gptqfp_e2m1_nv.safetensors";
const char kRotated[] = PTQWATCH_GOLDEN_DATA "/fp/gptqfp_e2m1_mx_floor_rot32.safetensors";

// A file, its check, and the contents that the check depends on.
struct Kind {
  const char* path;
  GoldenCheck* check;
  std::vector<std::string> tensors;
  std::vector<std::string> numbers;
};
const Kind kKinds[] = {
    {kGptq,
     &CheckGptq,
     {"codes", "scale", "zero", "order", "dequantized"},
     {"damp_value", "loss", "loss_damped", "rtn_loss"}},
    {kRtn, &CheckRtn, {"codes", "scale", "zero", "dequantized"}, {"sum_squared_error"}},
    {kAwq,
     &CheckAwq,
     {"scale", "channel_scale", "mean_abs", "losses", "dequantized"},
     {"ratio", "loss", "rtn_loss"}},
    {kNf4, &CheckNf4, {"codes", "packed", "absmax", "dequantized"}, {"sum_squared_error"}},
    {kLlmInt8,
     &CheckLlmInt8,
     {"codes", "absmax", "outlier_columns", "input_codes", "input_absmax", "dequantized", "output"},
     {"loss", "output_relative_error"}},
    {kMx, &CheckFp, {"codes", "scale", "scale_code", "dequantized"}, {}},
    {kNv, &CheckFp, {"codes", "scale", "scale_code", "tensor_scale", "dequantized"}, {}},
    {kFpBlock, &CheckFp, {"codes", "scale", "dequantized"}, {}},
    {kGptqFp,
     &CheckGptqFp,
     {"scale", "scale_code", "tensor_scale", "dequantized"},
     {"loss", "rtn_loss"}},
    {kRotated,
     &CheckGptqFp,
     {"scale", "scale_code", "rotated_dequantized", "dequantized"},
     {"loss", "rtn_loss"}},
};

// Saves them in a temporary file.
std::string Save(const std::string& bytes) {
  static const TempDir folder;
  const std::string path = folder.File("case");
  WriteFile(path, bytes);
  return path;
}

// The offset of a tensor's numbers in the file.
size_t DataOffset(const std::string& bytes, const std::string& tensor) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const size_t entry = bytes.find("\"" + tensor + "\":");
  const size_t offsets = bytes.find("data_offsets", entry);
  return 8 + length + std::stoul(bytes.substr(bytes.find('[', offsets) + 1));
}

TEST(GoldenCase, PassesOnTheOriginals) {
  absl::StatusOr<GoldenResult> result = CheckFile(kGptq, &CheckGptq);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->failure, "");
  EXPECT_EQ(result->codes, 70);
  result = CheckFile(kRtn, &CheckRtn);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->failure, "");
}

TEST(GoldenCase, PassesOnEveryKind) {
  for (const Kind& kind : kKinds) {
    const absl::StatusOr<GoldenResult> result = CheckFile(kind.path, kind.check);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->failure, "");
    EXPECT_EQ(result->codes_differ, 0);
    EXPECT_GT(result->codes, 0);
  }
}

TEST(GoldenCase, GptqLosesNoMoreThanRtn) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PTQWATCH_GOLDEN_DATA "/gptq")) {
    SCOPED_TRACE(entry.path());
    const absl::StatusOr<GoldenFile> file = GoldenFile::Read(entry.path());
    ASSERT_TRUE(file.ok()) << file.status();
    QuantizerSpec spec;
    spec.bits = *file->Integer("bits");
    spec.group_size = *file->Integer("group_size");
    spec.symmetric = *file->Flag("symmetric");
    spec.damp = *file->Number("damp");
    spec.order =
        *file->Text("order") == "act" ? QuantizationOrder::kStaticAct : QuantizationOrder::kNone;
    spec.min_tokens_ratio = 0;
    const absl::StatusOr<GoldenMatrix> weight = ReadMatrix(*file, "weight");
    ASSERT_TRUE(weight.ok()) << weight.status();
    ExecutionContext context;
    const absl::StatusOr<GramStatistics> statistics = ReadStatistics(*file, weight->cols, context);
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    const absl::StatusOr<QuantizedWeight> got =
        Quantize(weight->view(), &*statistics, spec, context);
    ASSERT_TRUE(got.ok()) << got.status();
    // H = I gives both the same codes; the sums differ in the last bits.
    EXPECT_LE(*got->loss, *got->rtn_loss * (1 + 1e-12));
    ++files;
  }
  EXPECT_EQ(files, 12);
}

TEST(GoldenCase, FailsWhenATensorWasChanged) {
  for (const Kind& kind : kKinds) {
    const std::string original = ReadFile(kind.path);
    for (const std::string& tensor : kind.tensors) {
      std::string bytes = original;
      // The first numbers of a tensor may be zeros; a bit of the last byte of a number is an
      // exponent's or a sign's.
      const size_t at = DataOffset(bytes, tensor);
      for (size_t i = 0; i < 8; ++i) bytes[at + i] ^= 1;
      const absl::StatusOr<GoldenResult> result = CheckFile(Save(bytes), kind.check);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_NE(result->failure, "") << kind.path << " " << tensor;
    }
  }
}

TEST(GoldenCase, FailsWhenANumberWasChanged) {
  for (const Kind& kind : kKinds) {
    const std::string original = ReadFile(kind.path);
    for (const std::string& key : kind.numbers) {
      std::string bytes = original;
      // The first significant digit.
      size_t at = bytes.find("\"", bytes.find("\"" + key + "\"") + key.size() + 2) + 1;
      at = bytes.find_first_of("123456789", at);
      bytes[at] = bytes[at] == '5' ? '9' : '5';
      const absl::StatusOr<GoldenResult> result = CheckFile(Save(bytes), kind.check);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_THAT(result->failure, HasSubstr(key)) << kind.path;
    }
  }
}

TEST(GoldenCase, NamesAMissingFile) {
  const absl::Status status = CheckFile("/nowhere/gptq_x.safetensors", &CheckGptq).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/gptq_x.safetensors"));
}

TEST(GoldenCase, NamesTheFileWhenTensorsAreMissingOrMisshapen) {
  const std::string path =
      Save(WithHeader(R"({"__metadata__":{"bits":"4","group_size":"32","symmetric":"true"},)"
                      R"("weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
                      std::string(8, '\0')));
  for (const Kind& kind : kKinds) {
    const absl::Status status = CheckFile(path, kind.check).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(GoldenCase, SurvivesCutOffFiles) {
  const std::string original = ReadFile(kRtn);
  for (size_t length = 0; length < original.size(); length += length < 1200 ? 37 : 911) {
    const absl::Status status = CheckFile(Save(original.substr(0, length)), &CheckRtn).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(GoldenCase, SurvivesRandomDamage) {
  for (const Kind& kind : kKinds) {
    const std::string original = ReadFile(kind.path);
    uint64_t header = 0;
    std::memcpy(&header, original.data(), 8);
    std::mt19937_64 random(1);
    for (int i = 0; i < 60; ++i) {
      std::string bytes = original;
      for (int k = 0; k < 3; ++k) bytes[random() % (8 + header)] = static_cast<char>(random());
      // Whatever it says, it must say it: sanitizers see the rest.
      const absl::StatusOr<GoldenResult> result = CheckFile(Save(bytes), kind.check);
      if (!result.ok()) {
        EXPECT_FALSE(result.status().message().empty());
      }
    }
  }
}

TEST(GoldenFile, RefusesDamagedHeaders) {
  const std::string eight(8, '\0');
  for (const std::string& bytes : {
           std::string(),
           std::string("short"),
           std::string(8, '\xff'),
           WithHeader("["),
           WithHeader("[]"),
           WithHeader("{\"a\":1}"),
           WithHeader(R"({"a":{"dtype":"F32","shape":[2]}})", eight),
           WithHeader(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", eight),
           WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight),
           WithHeader(
               R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
               eight),
           WithHeader(R"({"__metadata__":{"bits":4}})"),
           WithHeader(std::string(100000, '[')),
       }) {
    const std::string path = Save(bytes);
    const absl::Status status = GoldenFile::Read(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bytes.substr(0, 90);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(GoldenFile, GivesBackWhatItHolds) {
  std::string data(12, '\0');
  const float numbers[] = {1.5f, -2.0f};
  std::memcpy(data.data(), numbers, 8);
  absl::StatusOr<GoldenFile> file = GoldenFile::Read(
      Save(WithHeader(R"({"__metadata__":{"n":"12","x":"0.5","f":"true","t":"act"},)"
                      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"I32","shape":[],"data_offsets":[8,12]}})",
                      data)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Floats("a", {1, 2}), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(*file->Int32s("b", {}), std::vector<int32_t>{0});
  EXPECT_EQ(file->Int8s("b", {}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Uint8s("b", {}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Floats("a", {2, 1}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Int32s("a", {1, 2}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Doubles("c", {1}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*file->Integer("n"), 12);
  EXPECT_EQ(*file->Number("x"), 0.5);
  EXPECT_TRUE(*file->Flag("f"));
  EXPECT_EQ(*file->Text("t"), "act");
  EXPECT_EQ(file->Integer("t").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Flag("n").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file->Number("missing").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace golden_case_test
}  // namespace ptqwatch::testing
