#include "ptqwatch/offline/checkpoint_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/bit_stream.h"
#include "checkpoint/float16.h"
#include "support/temp_dir.h"
#include "support/unpack_weight.h"
#include "unit/checkpoint/raw_safetensors.h"

namespace ptqwatch {
namespace checkpoint_export_test {

using nlohmann::json;
using testing::BytesOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::UnpackWeight;

constexpr CheckpointFormat kBoth[] = {CheckpointFormat::kCompressedTensors,
                                      CheckpointFormat::kGptqV2};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

QuantizerSpec Spec(int bits, int group_size, bool symmetric,
                   ScaleDtype scale_dtype = ScaleDtype::kFloat16) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  spec.scale_dtype = scale_dtype;
  return spec;
}

int64_t Groups(const QuantizerSpec& spec, int64_t cols) {
  return spec.group_size < 0 ? 1 : (cols + spec.group_size - 1) / spec.group_size;
}

// Random codes on random grids of that spec.
QuantizedWeight RandomWeight(const QuantizerSpec& spec, int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int top = (1 << spec.bits) - 1;
  const auto upto = [&](int last) { return static_cast<int>(random() % (last + 1)); };
  QuantizedWeight weight;
  const int64_t groups = Groups(spec, cols);
  for (int64_t i = 0; i < rows * groups; ++i) {
    const float scale =
        std::ldexp(1.0f + static_cast<float>(upto(1 << 20)) * 0x1p-20f, upto(12) - 10);
    weight.scale.push_back(spec.scale_dtype == ScaleDtype::kFloat16
                               ? internal::FloatFromF16(internal::F16FromFloat(scale))
                               : internal::FloatFromBf16(internal::Bf16FromFloat(scale)));
    weight.zero.push_back(spec.symmetric ? static_cast<float>(1 << (spec.bits - 1))
                                         : static_cast<float>(upto(top)));
  }
  const int64_t size = spec.group_size < 0 ? cols : spec.group_size;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const size_t group = static_cast<size_t>(r * groups + c / size);
      weight.codes.push_back(static_cast<uint8_t>(upto(top)));
      weight.dequantized.push_back(weight.scale[group] *
                                   (static_cast<float>(weight.codes.back()) - weight.zero[group]));
    }
  }
  return weight;
}

const PackedTensor& Tensor(const std::vector<PackedTensor>& tensors, const std::string& name) {
  for (const PackedTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no " << name;
  static const PackedTensor none;
  return none;
}

std::vector<uint32_t> Words(const PackedTensor& tensor) {
  std::vector<uint32_t> words(tensor.bytes.size() / 4);
  std::memcpy(words.data(), tensor.bytes.data(), tensor.bytes.size());
  return words;
}

TEST(BitStream, GivesBackNumbersOfEveryWidthAndCount) {
  std::mt19937_64 random(1);
  for (int bits = 1; bits <= 8; ++bits) {
    for (int64_t count = 0; count < 100; ++count) {
      std::vector<uint8_t> numbers(static_cast<size_t>(count));
      for (uint8_t& number : numbers) {
        number = static_cast<uint8_t>(random() % (uint64_t{1} << bits));
      }
      const int64_t words = internal::WordsFor(count, bits);
      std::vector<uint32_t> stream(static_cast<size_t>(3 * words), 0xdeadbeef);
      internal::PackBits(
          count, bits, [&](int64_t i) { return numbers[static_cast<size_t>(i)]; }, stream.data(),
          3);
      std::vector<uint8_t> read(numbers.size());
      testing::UnpackBits(count, bits, stream.data(), 3, [&](int64_t i, uint8_t number) {
        read[static_cast<size_t>(i)] = number;
      });
      ASSERT_EQ(read, numbers) << bits << " bits";
      for (int64_t i = 0; i < words; ++i) {
        EXPECT_EQ(stream[static_cast<size_t>(3 * i + 1)], 0xdeadbeef);
      }
    }
  }
}

// 32 numbers of 3 bits: the classic layout of three words.
TEST(BitStream, PutsThreeBitsWhereGptqReadersLookForThem) {
  uint32_t words[3] = {};
  internal::PackBits(
      32, 3, [](int64_t i) { return static_cast<uint8_t>(i % 8); }, words, 1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(words[0] >> (3 * i) & 7, i % 8);
    EXPECT_EQ(words[1] >> (3 * i + 1) & 7, (i + 11) % 8);
    EXPECT_EQ(words[2] >> (3 * i + 2) & 7, (i + 22) % 8);
  }
  EXPECT_EQ(words[0] >> 30, 10 % 8 & 3);
  EXPECT_EQ(words[1] & 1, 10 % 8 >> 2);
  EXPECT_EQ(words[1] >> 31, 21 % 8 & 1);
  EXPECT_EQ(words[2] & 3, 21 % 8 >> 1);
}

TEST(PackWeight, UnpacksToTheSameBits) {
  uint64_t seed = 0;
  for (const CheckpointFormat format : kBoth) {
    for (int bits = 2; bits <= 8; ++bits) {
      for (const bool symmetric : {true, false}) {
        for (const int group_size : {-1, 32, 16}) {
          const QuantizerSpec spec = Spec(bits, group_size, symmetric);
          if (!CheckPackable(format, spec, 32, 96).ok()) continue;
          SCOPED_TRACE(std::string(ToString(format)) + " " + Describe(spec));
          const QuantizedWeight weight = RandomWeight(spec, 32, 96, ++seed);
          const auto packed = PackWeight(format, spec, 32, 96, weight);
          ASSERT_TRUE(packed.ok()) << packed.status();
          const auto unpacked = UnpackWeight(format, spec, *packed);
          ASSERT_TRUE(unpacked.ok()) << unpacked.status();
          EXPECT_EQ(unpacked->rows, 32);
          EXPECT_EQ(unpacked->cols, 96);
          EXPECT_EQ(unpacked->codes, weight.codes);
          EXPECT_EQ(unpacked->scale, weight.scale);
          EXPECT_EQ(unpacked->zero, weight.zero);
          EXPECT_EQ(unpacked->dequantized, weight.dequantized);
        }
      }
    }
  }
}

TEST(PackWeight, CompressedTensorsTakesEveryShapeThatGroupsDivide) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const auto& [rows, cols] : {std::pair(1, 1), std::pair(5, 7), std::pair(33, 21)}) {
      for (const bool symmetric : {true, false}) {
        const QuantizerSpec spec =
            Spec(bits, cols == 21 ? 7 : -1, symmetric, ScaleDtype::kBFloat16);
        const QuantizedWeight weight = RandomWeight(spec, rows, cols, 5);
        const auto packed =
            PackWeight(CheckpointFormat::kCompressedTensors, spec, rows, cols, weight);
        ASSERT_TRUE(packed.ok()) << packed.status();
        const auto unpacked = UnpackWeight(CheckpointFormat::kCompressedTensors, spec, *packed);
        ASSERT_TRUE(unpacked.ok()) << unpacked.status();
        EXPECT_EQ(unpacked->dequantized, weight.dequantized);
      }
    }
  }
}

TEST(PackWeight, GptqKeepsAShortLastGroup) {
  const QuantizerSpec spec = Spec(4, 64, false);
  const QuantizedWeight weight = RandomWeight(spec, 32, 96, 6);
  const auto packed = PackWeight(CheckpointFormat::kGptqV2, spec, 32, 96, weight);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_THAT(Tensor(*packed, "scales").shape, ElementsAre(2, 32));
  const auto unpacked = UnpackWeight(CheckpointFormat::kGptqV2, spec, *packed);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(unpacked->dequantized, weight.dequantized);
}

TEST(PackWeight, LaysCompressedTensorsOut) {
  const QuantizerSpec spec = Spec(4, 8, false);
  QuantizedWeight weight;
  for (int i = 0; i < 32; ++i) weight.codes.push_back(static_cast<uint8_t>(i % 16));
  weight.scale = {1, 2, 0.5, 4};
  weight.zero = {1, 2, 3, 15};
  const auto packed = PackWeight(CheckpointFormat::kCompressedTensors, spec, 2, 16, weight);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_EQ(packed->size(), 4);
  EXPECT_THAT(Tensor(*packed, "weight_packed").shape, ElementsAre(2, 2));
  EXPECT_THAT(Words(Tensor(*packed, "weight_packed")),
              ElementsAre(0x76543210, 0xfedcba98, 0x76543210, 0xfedcba98));
  EXPECT_EQ(Tensor(*packed, "weight_scale").dtype, TensorDtype::kF16);
  EXPECT_EQ(Tensor(*packed, "weight_scale").bytes,
            BytesOf<uint16_t>({0x3c00, 0x4000, 0x3800, 0x4400}));
  EXPECT_EQ(Tensor(*packed, "weight_shape").bytes, BytesOf<int64_t>({2, 16}));
  EXPECT_THAT(Tensor(*packed, "weight_zero_point").shape, ElementsAre(1, 2));
  EXPECT_THAT(Words(Tensor(*packed, "weight_zero_point")), ElementsAre(0x31, 0xf2));
}

TEST(PackWeight, LaysGptqOut) {
  const QuantizerSpec spec = Spec(8, 16, true);
  QuantizedWeight weight;
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 32; ++c) weight.codes.push_back(static_cast<uint8_t>(4 * c + r % 4));
    weight.scale.insert(weight.scale.end(), {1, static_cast<float>(r + 1)});
    weight.zero.insert(weight.zero.end(), {128, 128});
  }
  const auto packed = PackWeight(CheckpointFormat::kGptqV2, spec, 32, 32, weight);
  ASSERT_TRUE(packed.ok()) << packed.status();
  ASSERT_EQ(packed->size(), 4);
  EXPECT_THAT(Tensor(*packed, "qweight").shape, ElementsAre(8, 32));
  const std::vector<uint32_t> words = Words(Tensor(*packed, "qweight"));
  EXPECT_EQ(words[0], 0x0c080400);
  EXPECT_EQ(words[1], 0x0d090501);   // the second output
  EXPECT_EQ(words[32], 0x1c181410);  // inputs 4 to 7 of the first
  EXPECT_THAT(Tensor(*packed, "qzeros").shape, ElementsAre(2, 8));
  EXPECT_THAT(Words(Tensor(*packed, "qzeros")), ::testing::Each(0x80808080));
  EXPECT_EQ(Tensor(*packed, "scales").dtype, TensorDtype::kF16);
  EXPECT_EQ(Tensor(*packed, "scales").bytes.substr(0, 2), BytesOf<uint16_t>({0x3c00}));
  EXPECT_EQ(Tensor(*packed, "scales").bytes.substr(64, 4), BytesOf<uint16_t>({0x3c00, 0x4000}));
  EXPECT_EQ(Tensor(*packed, "g_idx").bytes.substr(60, 8), BytesOf<int32_t>({0, 1}));
}

TEST(CheckPackable, SaysWhatDoesNotFit) {
  const auto refusal = [](CheckpointFormat format, const QuantizerSpec& spec, int64_t rows,
                          int64_t cols) {
    const absl::Status status = CheckPackable(format, spec, rows, cols);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return Message(status);
  };
  const QuantizerSpec good = Spec(4, 32, true);
  for (const CheckpointFormat format : kBoth) {
    EXPECT_TRUE(CheckPackable(format, good, 64, 96).ok());
    QuantizerSpec spec = good;
    spec.method = QuantizationMethod::kRtn;
    EXPECT_TRUE(CheckPackable(format, spec, 64, 96).ok());
    spec.method = QuantizationMethod::kAwq;
    EXPECT_THAT(refusal(format, spec, 64, 96), HasSubstr("folded"));
    spec.method = QuantizationMethod::kNf4;
    EXPECT_THAT(refusal(format, spec, 64, 96), HasSubstr("nf4"));
    spec.method = QuantizationMethod::kLlmInt8;
    spec.bits = 8;
    EXPECT_THAT(refusal(format, spec, 64, 96), HasSubstr("llm_int8"));
    spec = good;
    spec.scale_dtype = ScaleDtype::kFloat32;
    EXPECT_THAT(refusal(format, spec, 64, 96), HasSubstr("f32"));
    spec = good;
    spec.bits = 9;
    EXPECT_THAT(refusal(format, spec, 64, 96), HasSubstr("bits"));
    EXPECT_THAT(refusal(format, good, 0, 96), HasSubstr("[0, 96]"));
    spec.bits = 6;
    spec.narrow_range = true;
    spec.clip = ClipSearch::kStd;
    spec.clip_value = 12.85;
    EXPECT_EQ(CheckPackable(format, spec, 64, 96).ok(), format != CheckpointFormat::kGptqV2);
    spec.bits = 8;
    EXPECT_TRUE(CheckPackable(format, spec, 64, 96).ok());
  }
  for (const int bits : {5, 6, 7}) {
    QuantizerSpec spec = good;
    spec.bits = bits;
    EXPECT_THAT(refusal(CheckpointFormat::kGptqV2, spec, 64, 96),
                HasSubstr("bits " + std::to_string(bits) + ": gptq-v2 holds 2, 3, 4 or 8"));
  }
  QuantizerSpec bf16 = good;
  bf16.scale_dtype = ScaleDtype::kBFloat16;
  EXPECT_TRUE(CheckPackable(CheckpointFormat::kCompressedTensors, bf16, 64, 96).ok());
  EXPECT_THAT(refusal(CheckpointFormat::kGptqV2, bf16, 64, 96), HasSubstr("bf16"));
  EXPECT_THAT(refusal(CheckpointFormat::kGptqV2, good, 48, 96), HasSubstr("[48, 96]"));
  EXPECT_THAT(refusal(CheckpointFormat::kGptqV2, good, 64, 100), HasSubstr("multiples of 32"));
  EXPECT_THAT(refusal(CheckpointFormat::kCompressedTensors, good, 64, 100),
              HasSubstr("does not divide 100"));
}

TEST(PackWeight, RefusesAWeightThatIsNotOfItsSpec) {
  const QuantizerSpec spec = Spec(4, 32, true);
  const QuantizedWeight good = RandomWeight(spec, 32, 64, 7);
  for (const CheckpointFormat format : kBoth) {
    const auto refusal = [&](const QuantizedWeight& weight) {
      const absl::Status status = PackWeight(format, spec, 32, 64, weight).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return Message(status);
    };
    QuantizedWeight weight;
    weight.status = LayerStatus::kNonFinite;
    EXPECT_THAT(refusal(weight), HasSubstr("nonfinite"));
    weight = good;
    weight.codes.pop_back();
    EXPECT_THAT(refusal(weight), HasSubstr("2047 codes"));
    weight = good;
    weight.codes[3] = 16;
    EXPECT_THAT(refusal(weight), HasSubstr("code is 16"));
    weight = good;
    weight.scale.pop_back();
    EXPECT_THAT(refusal(weight), HasSubstr("63 scales"));
    weight = good;
    weight.scale[5] = 0.1f;
    EXPECT_THAT(refusal(weight), HasSubstr("0.1"));
    weight = good;
    weight.scale[5] = 1e6f;
    EXPECT_THAT(refusal(weight), HasSubstr("scale"));
    weight = good;
    weight.zero[5] = 7;
    EXPECT_THAT(refusal(weight), HasSubstr("zero is 7"));
    weight = good;
    weight.zero.clear();
    EXPECT_THAT(refusal(weight), HasSubstr("0 zeros"));
  }
  QuantizerSpec asymmetric = Spec(4, 32, false);
  QuantizedWeight weight = RandomWeight(asymmetric, 32, 64, 8);
  for (const float zero : {-1.0f, 16.0f, 2.5f, std::nanf("")}) {
    weight.zero[9] = zero;
    EXPECT_FALSE(PackWeight(CheckpointFormat::kGptqV2, asymmetric, 32, 64, weight).ok()) << zero;
  }
}

TEST(QuantizationConfig, DescribesCompressedTensors) {
  const json config = json::parse(QuantizationConfigJson(CheckpointFormat::kCompressedTensors,
                                                         Spec(4, 128, true), {"lm_head", "embed"}));
  EXPECT_EQ(config["quant_method"], "compressed-tensors");
  EXPECT_EQ(config["format"], "pack-quantized");
  EXPECT_EQ(config["quantization_status"], "compressed");
  EXPECT_EQ(config["ignore"], json({"lm_head", "embed"}));
  const json& group = config["config_groups"]["group_0"];
  EXPECT_EQ(group["targets"], json::array({"Linear"}));
  EXPECT_EQ(group["weights"], json::parse(R"({"num_bits":4,"type":"int","symmetric":true,
      "strategy":"group","group_size":128,"dynamic":false,"actorder":"weight"})"));

  QuantizerSpec spec = Spec(8, -1, false);
  spec.method = QuantizationMethod::kRtn;
  const json channel =
      json::parse(QuantizationConfigJson(CheckpointFormat::kCompressedTensors, spec, {}));
  const json& weights = channel["config_groups"]["group_0"]["weights"];
  EXPECT_EQ(weights["strategy"], "channel");
  EXPECT_TRUE(weights["group_size"].is_null());
  EXPECT_TRUE(weights["actorder"].is_null());
  EXPECT_EQ(weights["symmetric"], false);
  EXPECT_EQ(channel["ignore"], json::array());
}

// A floating-point format beside what compressed-tensors stores of it.
struct StoredFormat {
  QuantizationFormat format;
  const char* name;
  const char* strategy;
  int group_size;
  const char* scale_dtype;  // of the description; null: it names none
  TensorDtype codes, scales;
};
constexpr StoredFormat kStoredFormats[] = {
    {QuantizationFormat::kFp8, "float-quantized", "group", 64, nullptr, TensorDtype::kF8E4M3,
     TensorDtype::kF32},
    {QuantizationFormat::kFp8E5m2, "float-quantized", "group", 64, nullptr, TensorDtype::kF8E5M2,
     TensorDtype::kF32},
    {QuantizationFormat::kMxfp4, "mxfp4-pack-quantized", "group", 32, "torch.uint8",
     TensorDtype::kU8, TensorDtype::kU8},
    {QuantizationFormat::kMxfp8, "mxfp8-quantized", "group", 32, "torch.uint8",
     TensorDtype::kF8E4M3, TensorDtype::kU8},
    {QuantizationFormat::kNvfp4, "nvfp4-pack-quantized", "tensor_group", 16, "torch.float8_e4m3fn",
     TensorDtype::kU8, TensorDtype::kF8E4M3},
};

TEST(QuantizationConfig, DescribesFloatingPointFormats) {
  std::vector<float> weight(2 * 64);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.3f - 0.01f * static_cast<float>(i);
  for (const StoredFormat& stored : kStoredFormats) {
    SCOPED_TRACE(ToString(stored.format));
    const QuantizerSpec spec{.method = QuantizationMethod::kRtn,
                             .bits = *FixedBits(stored.format),
                             .format = stored.format,
                             .group_size = 64};
    const json config =
        json::parse(QuantizationConfigJson(CheckpointFormat::kCompressedTensors, spec, {}));
    EXPECT_EQ(config["format"], stored.name);
    const json& weights = config["config_groups"]["group_0"]["weights"];
    EXPECT_EQ(weights["type"], "float");
    EXPECT_EQ(weights["num_bits"], spec.bits);
    EXPECT_EQ(weights["strategy"], stored.strategy);
    EXPECT_EQ(weights["group_size"], stored.group_size);
    EXPECT_EQ(weights.value("scale_dtype", ""), stored.scale_dtype ? stored.scale_dtype : "");

    const auto quantized = Quantize({.data = weight.data(), .rows = 2, .cols = 64}, nullptr, spec);
    ASSERT_TRUE(quantized.ok()) << quantized.status();
    const auto packed = PackWeight(CheckpointFormat::kCompressedTensors, spec, 2, 64, *quantized);
    ASSERT_TRUE(packed.ok()) << packed.status();
    EXPECT_EQ((*packed)[0].name, spec.bits == 4 ? "weight_packed" : "weight");
    EXPECT_EQ((*packed)[0].dtype, stored.codes);
    EXPECT_EQ((*packed)[0].bytes.size(), 128u * static_cast<size_t>(spec.bits) / 8);
    EXPECT_EQ((*packed)[1].name, "weight_scale");
    EXPECT_EQ((*packed)[1].dtype, stored.scales);
    EXPECT_THAT(Message(PackWeight(CheckpointFormat::kGptqV2, spec, 2, 64, *quantized).status()),
                HasSubstr("gptq-v2 holds integers alone"));
  }
}

TEST(QuantizationConfig, NamesModulesWithAnotherSpec) {
  const std::vector<QuantizedModule> others = {
      {"mlp.up", Spec(3, 64, true)}, {"head", Spec(8, 64, true)}, {"mlp.down", Spec(3, 64, true)}};
  const json config = json::parse(
      QuantizationConfigJson(CheckpointFormat::kCompressedTensors, Spec(4, 64, true), {}, others));
  const json& groups = config["config_groups"];
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups["group_0"]["targets"], json::array({"Linear"}));
  EXPECT_EQ(groups["group_0"]["weights"]["num_bits"], 4);
  EXPECT_EQ(groups["group_1"]["targets"], json({"mlp.up", "mlp.down"}));
  EXPECT_EQ(groups["group_1"]["weights"]["num_bits"], 3);
  EXPECT_EQ(groups["group_2"]["targets"], json::array({"head"}));
  EXPECT_EQ(groups["group_2"]["weights"]["num_bits"], 8);
  EXPECT_EQ(groups["group_2"]["format"], "pack-quantized");
  const json gptq = json::parse(
      QuantizationConfigJson(CheckpointFormat::kGptqV2, Spec(4, 64, true), {"embed"}, others));
  EXPECT_EQ(gptq["bits"], 4);
  EXPECT_EQ(gptq["dynamic"], json::parse(R"({"-:^embed$":{},
      "+:^mlp\\.up$":{"bits":3,"group_size":64,"sym":true},
      "+:^mlp\\.down$":{"bits":3,"group_size":64,"sym":true},
      "+:^head$":{"bits":8,"group_size":64,"sym":true}})"));
}

TEST(QuantizationConfig, DescribesGptqV2) {
  const json config = json::parse(
      QuantizationConfigJson(CheckpointFormat::kGptqV2, Spec(3, 64, false), {"model.lm_head"}));
  EXPECT_EQ(config["quant_method"], "gptq");
  EXPECT_EQ(config["checkpoint_format"], "gptq_v2");
  EXPECT_EQ(config["bits"], 3);
  EXPECT_EQ(config["group_size"], 64);
  EXPECT_EQ(config["sym"], false);
  EXPECT_EQ(config["desc_act"], false);
  EXPECT_EQ(config["pack_dtype"], "int32");
  EXPECT_EQ(config["damp_percent"], 0.01);
  EXPECT_EQ(config["dynamic"], json::parse(R"({"-:^model\\.lm_head$":{}})"));
}

TEST(CheckpointFormat, NamesAreReadBack) {
  for (const CheckpointFormat format : kBoth) {
    EXPECT_EQ(*ParseCheckpointFormat(ToString(format)), format);
  }
  EXPECT_THAT(
      Message(ParseCheckpointFormat("gguf").status()),
      HasSubstr("unknown checkpoint format 'gguf'; known are compressed-tensors and gptq-v2"));
}

}  // namespace checkpoint_export_test
}  // namespace ptqwatch
